"""What somebody is told whose engine lends no node in time."""

from pathlib import Path

import pytest

from corral.boot import bring_up
from corral.boot.settings import ClusterDir, ClusterSettings
from corral.boot.start_head import StartFailed, logged_bytes
from corral.cli.error_output import UNREACHABLE, exit_code_of
from corral.domain.cluster_warning import WarningCode
from corral.domain.errors import Unreachable
from corral.wire import api

SILENT = "Slurm does not answer: cannot reach slurmctld"


def status(
    warning: str = SILENT, code: str = WarningCode.ENGINE_UNREACHABLE
) -> api.Status:
    return api.Status(
        head=api.HeadView(pid=1, url="http://127.0.0.1:1", version="1", started_at=0.0),
        cluster=api.ClusterView(id="c", engine="slurm", term=1),
        nodes=[],
        gpus=api.Gpus(total=0, free=0.0, used=0.0, away=0),
        jobs={},
        warnings=[api.WarningView(code=code, text=warning)],
    )


def test_an_engine_without_a_node_is_told_with_why_and_with_the_log_of_this_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bring_up, "LENT_SECONDS", 0.0)
    place = ClusterDir(tmp_path)
    place.create()
    ClusterSettings(engine="slurm").save(place)
    place.head_log.write_text("of the last start\n")
    before = logged_bytes(place)
    with place.head_log.open("a") as log:
        log.write("of this start\n")
    with pytest.raises(StartFailed) as failed:
        bring_up.wait_for_nodes(place, status, since_bytes=before)
    assert SILENT in failed.value.message
    assert "of this start" in failed.value.message
    assert "of the last start" not in failed.value.message


def test_what_the_head_warns_of_is_told_at_once_and_each_thing_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bring_up, "POLL_SECONDS", 0.0)
    place = ClusterDir(tmp_path)
    place.create()
    ClusterSettings(engine="slurm").save(place)
    answers, told = iter(["it is late", "it is late", SILENT, SILENT]), list[str]()

    def ask() -> api.Status:
        try:
            return status(next(answers))
        except StopIteration:
            raise Unreachable("enough") from None

    with pytest.raises(Unreachable):
        bring_up.wait_for_nodes(place, ask, since_bytes=0, tell=told.append)
    assert told == [
        "waiting for a node of slurm",
        "warning: it is late",
        f"warning: {SILENT}",
    ]


def lent(root: Path, monkeypatch: pytest.MonkeyPatch) -> ClusterDir:
    """Where what lends the nodes may fail for no time at all."""
    monkeypatch.setattr(bring_up, "POLL_SECONDS", 0.0)
    monkeypatch.setattr(bring_up, "SILENT_SECONDS", 0.0)
    place = ClusterDir(root)
    place.create()
    ClusterSettings(engine="slurm").save(place)
    return place


def test_where_slurm_is_away_the_command_ends_and_says_that_the_head_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = lent(tmp_path, monkeypatch)
    with pytest.raises(
        StartFailed, match="the head still runs and continues to try"
    ) as failed:
        bring_up.wait_for_nodes(place, status, since_bytes=0)
    assert SILENT in failed.value.message
    for next_command in ("corral status", "corral down", "corral up --engine local"):
        assert next_command in failed.value.hint
    assert exit_code_of(failed.value) == UNREACHABLE


@pytest.mark.parametrize(
    ("warning", "code"),
    [
        ("Slurm has not answered for 2 s", WarningCode.ENGINE),
        ("the disk of the head is full", WarningCode.DISK_FULL),
    ],
)
def test_what_is_late_or_no_trouble_of_the_engine_is_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, warning: str, code: WarningCode
) -> None:
    place, answers = lent(tmp_path, monkeypatch), iter([warning] * 50)

    def ask() -> api.Status:
        try:
            return status(next(answers), code)
        except StopIteration:
            raise Unreachable("enough") from None

    with pytest.raises(Unreachable):
        bring_up.wait_for_nodes(place, ask, since_bytes=0)
