"""Starting from the save of another job: it is read, and never changed."""

import json
from pathlib import Path

import pytest

from corral.train.data.sampler import Sampler
from corral.train.rank_settings import Settings, read_settings
from corral.train.save.checkpoint_dir import QUARANTINED, Shelf
from corral.train.save.restore import OriginBroken, RestoreCandidate, candidates, choose
from corral.train.save.training_state import NoState, check_stateful
from tests.train.saves import ALONE, make_saves, step_loaded

pytestmark = pytest.mark.train


def settings_of(root: Path, resume: list[dict[str, object]]) -> Settings:
    env = {
        "CORRAL_JOB_ID": "j2",
        "CORRAL_ATTEMPT": "1",
        "CORRAL_CHECKPOINT_PATH": str(root),
        "CORRAL_RESUME": json.dumps(resume),
    }
    return read_settings(env)


def begun(tmp_path: Path) -> tuple[Settings, list[RestoreCandidate], Path]:
    """A job that starts from the save of step 7 of j1, whose attempt was its fourth."""
    (saved,) = make_saves(tmp_path / "one", [7], attempt=4)
    entry: dict[str, object] = {
        "job": "j1",
        "attempt": 4,
        "step": 7,
        "path": str(saved.path),
        "manifest_sha256": saved.manifest_sha256,
    }
    settings = settings_of(tmp_path / "two", [entry])
    shelf = Shelf(root=tmp_path / "two", job="j2", attempt=1)
    shelf.open()
    return settings, candidates(settings, shelf), saved.directory


def test_a_job_loads_the_save_of_another(tmp_path: Path) -> None:
    settings, found, _ = begun(tmp_path)
    chosen = choose(found, ALONE, lambda one, why: None)
    assert chosen is not None
    assert step_loaded(chosen) == 7
    assert not any(settings.is_own(one) for one in settings.resume or ()), (
        "it may be pruned"
    )


def test_a_save_of_another_that_does_not_verify_ends_the_job_and_stays_where_it_is(
    tmp_path: Path,
) -> None:
    _, found, path = begun(tmp_path)
    victim = next(one for one in path.iterdir() if one.stat().st_size > 100)
    victim.write_bytes(victim.read_bytes()[:-1])
    with pytest.raises(
        OriginBroken, match=r"step 7 of j1, which this job starts from.*@STEP"
    ):
        choose(found, ALONE, lambda one, why: None)
    assert path.is_dir()
    assert not list(path.parent.glob(f"*{QUARANTINED}*"))


class Plain:
    """A sampler like torch's DistributedSampler: without a state."""


def test_an_object_without_state_is_refused_before_the_first_step() -> None:
    with pytest.raises(NoState) as refused:
        check_stateful("data", Plain())
    assert refused.value.message == (
        "resume(data=...): Plain has no state_dict; "
        "use corral.train.Sampler(len(dataset), batch_size)"
    )
    with pytest.raises(NoState, match="leave scaler out, or give it"):
        check_stateful("scaler", Plain())
    check_stateful("data", None)
    check_stateful("data", Sampler(8, 2, rank=0, world_size=1))
