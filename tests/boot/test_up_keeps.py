"""What a head never came up with is not what the next one is asked to be."""

import fcntl
from pathlib import Path
from typing import Any

import pytest

from corral.boot import bring_up as up
from corral.boot.bring_up import bring_up
from corral.boot.cluster_options import ClusterOptions
from corral.boot.declared_settings import STORE_FILE
from corral.boot.settings import ClusterDir, ClusterSettings
from corral.boot.start_head import StartFailed
from corral.domain.errors import Conflict

PRETEND: dict[str, Any] = {"nodes": 1, "pretend": True}


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ClusterDir:
    """Where no head comes up."""
    monkeypatch.delenv("CORRAL_STORE", raising=False)
    monkeypatch.setattr(up, "start_head", fails)
    return ClusterDir(tmp_path / "c")


def fails(place: ClusterDir) -> None:
    assert place.cluster_json.exists(), "a head has to read what it shall be"
    raise StartFailed("the head ended with code 3", hint="look")


def test_of_a_first_head_that_never_came_up_nothing_is_kept(
    place: ClusterDir, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(StartFailed):
        bring_up(place, ClusterOptions(**PRETEND, keep_jobs=7))
    assert ClusterSettings.load(place) is None
    monkeypatch.setattr(up, "start_head", lambda place: None)
    bring_up(place, ClusterOptions(**PRETEND))
    assert ClusterSettings.load(place) == ClusterSettings(
        **PRETEND, started_in=str(Path.cwd())
    )


@pytest.mark.parametrize(
    ("port_now", "lost"), [(8471, 8470), (8470, None)], ids=["another", "the same"]
)
def test_a_head_that_had_to_move_says_which_port_was_taken(
    place: ClusterDir, monkeypatch: pytest.MonkeyPatch, port_now: int, lost: int | None
) -> None:
    place.create()
    place.head_json.write_text('{"url": "http://127.0.0.1:8470"}')

    def starts(place: ClusterDir) -> None:
        place.head_json.write_text(f'{{"url": "http://127.0.0.1:{port_now}"}}')

    monkeypatch.setattr(up, "start_head", starts)
    assert bring_up(place, ClusterOptions(**PRETEND)).lost_port == lost


def test_what_was_before_is_there_again(
    place: ClusterDir, monkeypatch: pytest.MonkeyPatch
) -> None:
    place.create()
    before = ClusterSettings(**PRETEND, keep_jobs=7)
    before.save(place)
    (place.root / STORE_FILE).write_text("postgresql://u@one/corral\n")
    monkeypatch.setenv("CORRAL_STORE", "postgresql://u@two/corral")
    with pytest.raises(StartFailed):
        bring_up(place, ClusterOptions(nodes=2, shared_state=str(place.root / "state")))
    assert ClusterSettings.load(place) == before
    assert (place.root / STORE_FILE).read_text() == "postgresql://u@one/corral\n"


def test_a_head_that_is_only_late_keeps_what_it_was_started_with(
    place: ClusterDir, monkeypatch: pytest.MonkeyPatch
) -> None:
    place.create()
    with place.head_lock.open("w") as lock:

        def late(place: ClusterDir) -> None:
            fcntl.flock(lock, fcntl.LOCK_EX)
            fails(place)

        monkeypatch.setattr(up, "start_head", late)
        with pytest.raises(StartFailed):
            bring_up(place, ClusterOptions(**PRETEND))
    assert ClusterSettings.load(place) == ClusterSettings(
        **PRETEND, started_in=str(Path.cwd())
    )


def test_a_store_file_that_is_a_folder_is_refused_before_a_head_starts(
    place: ClusterDir,
) -> None:
    asked = ClusterOptions(
        **PRETEND, store_file=str(place.root), shared_state=str(place.root / "state")
    )
    with pytest.raises(
        Conflict, match="address of the store cannot be read: .*directory"
    ):
        bring_up(place, asked)
    assert ClusterSettings.load(place) is None
