"""Which engine a cluster is asked to run on, before anything is started."""

import fcntl
from pathlib import Path

import pytest

from corral.boot import settings as boot_settings
from corral.boot.bring_up import bring_up, decide
from corral.boot.cluster_options import ClusterOptions
from corral.boot.declared_settings import ENGINES
from corral.boot.settings import ClusterDir, ClusterSettings
from corral.cli.setting_options import pairs_of
from corral.domain.errors import Conflict, SpecInvalid


@pytest.fixture(autouse=True)
def known_engines(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(boot_settings, "ENGINES", ("local", "other"))


@pytest.fixture
def place(tmp_path: Path) -> ClusterDir:
    found = ClusterDir(tmp_path)
    found.create()
    return found


def no_gpus() -> int:
    return 0


def test_nodes_of_this_machine_are_what_nobody_asks_otherwise(
    place: ClusterDir,
) -> None:
    assert decide(place, ClusterOptions(), no_gpus).engine == "local"


def test_another_engine_and_its_settings_are_kept(place: ClusterDir) -> None:
    asked = ClusterOptions(engine="other", engine_settings={"partition": "gpu"})
    decide(place, asked, no_gpus).save(place)
    again = decide(place, ClusterOptions(), no_gpus)
    assert (again.engine, again.engine_settings) == ("other", {"partition": "gpu"})


def test_settings_of_one_engine_are_not_those_of_the_next(place: ClusterDir) -> None:
    ClusterSettings(engine="other", engine_settings={"partition": "gpu"}).save(place)
    back = decide(place, ClusterOptions(engine="local", nodes=2), no_gpus)
    assert (back.engine, back.nodes, back.engine_settings) == ("local", 2, {})
    back.save(place)
    assert decide(place, ClusterOptions(engine="other"), no_gpus).engine == "other"


def test_an_unknown_engine_is_refused_with_those_there_are(place: ClusterDir) -> None:
    with pytest.raises(SpecInvalid, match="no engine nomad; .*local, other"):
        decide(place, ClusterOptions(engine="nomad"), no_gpus)


def test_only_the_local_engine_makes_nodes(place: ClusterDir) -> None:
    with pytest.raises(
        SpecInvalid, match="--nodes, --gpu-type: only valid with the local engine"
    ):
        decide(place, ClusterOptions(engine="other", nodes=2, gpu_type="h100"), no_gpus)


def test_the_local_engine_has_no_settings(place: ClusterDir) -> None:
    with pytest.raises(SpecInvalid, match="the local engine has no settings"):
        decide(place, ClusterOptions(engine_settings={"a": "b"}), no_gpus)


@pytest.mark.parametrize(
    ("engine", "given", "what"),
    [
        ("slurm", {"pretned": "yes"}, "no setting 'pretned'"),
        ("ray", {"address": "here"}, "not the address of a Ray cluster"),
        (
            "kubernetes",
            {"call_seconds": "soon"},
            "call_seconds=soon is not a number of seconds",
        ),
    ],
)
def test_settings_that_the_engine_would_not_take_are_refused_and_not_kept(
    place: ClusterDir,
    monkeypatch: pytest.MonkeyPatch,
    engine: str,
    given: dict[str, str],
    what: str,
) -> None:
    monkeypatch.setattr(boot_settings, "ENGINES", ENGINES)
    with pytest.raises(SpecInvalid, match=what):
        bring_up(place, ClusterOptions(engine=engine, engine_settings=given))
    assert not place.cluster_json.exists()


def test_settings_are_read_before_a_head_that_is_up_is_told_to_end(
    place: ClusterDir, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(boot_settings, "ENGINES", ENGINES)
    ClusterSettings(engine="slurm", engine_settings={"partition": "gpu"}).save(place)
    with place.head_lock.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with pytest.raises(SpecInvalid, match="no setting 'pretned'"):
            bring_up(place, ClusterOptions(engine_settings={"pretned": "yes"}))
        with pytest.raises(Conflict, match="other settings: --set is partition=gpu"):
            bring_up(place, ClusterOptions(engine_settings={"partition": "cpu"}))


def test_what_was_not_given_is_not_named(place: ClusterDir) -> None:
    ClusterSettings(nodes=2).save(place)
    with pytest.raises(SpecInvalid, match="^--nodes: only valid with the local engine"):
        decide(place, ClusterOptions(engine="other", nodes=3), no_gpus)


def test_a_setting_is_a_name_and_a_value() -> None:
    assert pairs_of(("a=b", "c=d=e", "f=")) == {"a": "b", "c": "d=e", "f": ""}
    for wrong in ("a", "=b", " =b"):
        with pytest.raises(SpecInvalid, match="is not of the form NAME=VALUE"):
            pairs_of((wrong,))
