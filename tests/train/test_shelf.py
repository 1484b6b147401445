"""The directory of a job's saves."""

from pathlib import Path

import pytest

from corral.domain.errors import CorralError
from corral.domain.keep_rule import BestRule, KeepRule
from corral.train.save.checkpoint_dir import Shelf, claim, put_aside
from corral.train.save.checkpoint_store import Fenced
from corral.train.save.manifest import MANIFEST, Manifest, encode


def shelf(root: Path, attempt: int, steps: list[int] | None = None) -> Shelf:
    made = Shelf(root=root, job="j1", attempt=attempt)
    made.open()
    for step in steps or []:
        made.publish(step, made.begin(step), b"{}")
    return made


def steps_of(one: Shelf) -> list[tuple[int, int]]:
    return [(slot.attempt, slot.step) for slot in one.saves()]


def test_the_newest_attempts_saves_come_first(tmp_path: Path) -> None:
    shelf(tmp_path, 1, [10, 200, 30])
    assert steps_of(shelf(tmp_path, 2, [40])) == [(2, 40), (1, 200), (1, 30), (1, 10)]


def test_what_is_not_complete_is_no_save(tmp_path: Path) -> None:
    one = shelf(tmp_path, 1, [10])
    one.begin(20)
    one.target(30).mkdir()
    put_aside(one.begin(40).directory, "why")
    assert steps_of(one) == [(1, 10)]


def test_a_leftover_never_blocks_the_same_step(tmp_path: Path) -> None:
    one = shelf(tmp_path, 1)
    (one.begin(10).directory / "left.over").write_text("x")
    assert list(one.begin(10).directory.iterdir()) == []


def test_a_new_attempt_sweeps_older_leftovers_and_no_others(tmp_path: Path) -> None:
    old = shelf(tmp_path, 1, [5])
    old.begin(10)
    new = Shelf(root=tmp_path, job="j1", attempt=3)
    new.begin(20)
    Shelf(root=tmp_path, job="j1", attempt=2).open()
    assert not old.partial(10).exists()
    assert old.target(5).exists()
    assert new.partial(20).exists()


def test_an_older_attempt_may_not_publish(tmp_path: Path) -> None:
    old = shelf(tmp_path, 1)
    target = old.begin(10)
    shelf(tmp_path, 2)
    with pytest.raises(Fenced) as caught:
        old.publish(10, target, b"{}")
    assert isinstance(caught.value, CorralError)
    assert not old.target(10).exists()


def test_an_older_attempt_may_not_even_begin_and_so_leaves_nothing(
    tmp_path: Path,
) -> None:
    old = shelf(tmp_path, 1)
    shelf(tmp_path, 2)
    with pytest.raises(Fenced):
        old.begin(10)
    assert list(old.directory.iterdir()) == []


def test_publishing_a_step_again_keeps_the_first_aside(tmp_path: Path) -> None:
    one = shelf(tmp_path, 1, [10])
    one.publish(10, one.begin(10), b"second")
    assert (one.target(10) / MANIFEST).read_text() == "second"
    assert (one.directory / "step-10.quarantined" / MANIFEST).read_text() == "{}"


def test_put_aside_never_overwrites_what_was_put_aside_before(tmp_path: Path) -> None:
    names = []
    for _ in range(3):
        (tmp_path / "step-1").mkdir()
        names.append(put_aside(tmp_path / "step-1", "broken").name)
    assert names == [
        "step-1.quarantined",
        "step-1.quarantined-2",
        "step-1.quarantined-3",
    ]
    assert (tmp_path / names[2] / "why.txt").read_text() == "broken\n"


def test_pruning_keeps_the_newest_recorded_and_all_that_is_younger(
    tmp_path: Path,
) -> None:
    shelf(tmp_path, 1, [10, 20, 30, 40])
    one = shelf(tmp_path, 2, [35, 45, 55])
    recorded = {(1, 10), (1, 30), (2, 35), (2, 45)}
    one.prune(recorded, rule=KeepRule(last=2))
    assert steps_of(one) == [(2, 55), (2, 45), (2, 35)]
    assert not list(tmp_path.glob("attempt-*/*.partial"))


def test_nothing_goes_before_enough_is_recorded(tmp_path: Path) -> None:
    one = shelf(tmp_path, 1, [10, 20, 30])
    assert one.prune({(1, 30)}, rule=KeepRule(last=2)) == []
    assert one.prune(set(), rule=KeepRule(last=1)) == []
    assert len(steps_of(one)) == 3


def test_the_last_recorded_save_stays_whatever_keep_says(tmp_path: Path) -> None:
    one = shelf(tmp_path, 1, [10, 20])
    one.prune({(1, 10), (1, 20)}, rule=KeepRule(last=0))
    assert steps_of(one) == [(1, 20)]


def test_a_directory_belongs_to_the_job_that_came_first(tmp_path: Path) -> None:
    root = tmp_path / "a" / "b"
    assert claim(root, "j1") == root
    assert claim(root, "j1") == root
    assert claim(root, "j2") == root / "j2"
    assert claim(root, "") == root
    assert [path.name for path in root.iterdir()] == ["job"]


def saved(
    root: Path, attempt: int, made: dict[int, tuple[float, float | None]]
) -> Shelf:
    """A shelf with saves of these steps, each with its time and its loss."""
    one = Shelf(root=root, job="j1", attempt=attempt)
    one.open()
    for step, (at, loss) in made.items():
        manifest = Manifest(
            job="j1",
            attempt=attempt,
            step=step,
            world_size=1,
            torch="2",
            files=(),
            metrics=() if loss is None else (("loss", loss),),
            saved_at=at,
        )
        one.publish(step, one.begin(step), encode(manifest))
    return one


def test_what_a_manifest_says_decides_what_stays(tmp_path: Path) -> None:
    day = 86_400.0
    one = saved(
        tmp_path,
        1,
        {
            10: (0.0, 3.0),
            20: (9.0, 1.0),
            30: (day, None),
            40: (day + 9, 2.0),
            50: (day + 99, 5.0),
        },
    )
    every = {(1, step) for step in (10, 20, 30, 40, 50)}
    rule = KeepRule(last=1, every_seconds=day, best=BestRule(metric="loss"))
    removed = one.prune(every, rule=rule)
    assert steps_of(one) == [(1, 50), (1, 30), (1, 20), (1, 10)]
    assert [slot.step for slot in removed] == [40]


def test_a_pinned_save_stays_recorded_or_not(tmp_path: Path) -> None:
    one = shelf(tmp_path, 1, [10, 20, 30, 40])
    one.prune({(1, 20), (1, 40)}, rule=KeepRule(last=1), pinned={(1, 10), (1, 20)})
    assert steps_of(one) == [(1, 40), (1, 20), (1, 10)]


def test_a_manifest_that_cannot_be_read_has_no_metrics(tmp_path: Path) -> None:
    one = saved(tmp_path, 1, {10: (1.0, 0.1), 20: (2.0, 0.2), 30: (3.0, 0.3)})
    (one.target(10) / MANIFEST).write_text("{}")
    recorded = {(1, 10), (1, 20), (1, 30)}
    one.prune(recorded, rule=KeepRule(last=1, best=BestRule(metric="loss")))
    assert steps_of(one) == [(1, 30), (1, 20)]
