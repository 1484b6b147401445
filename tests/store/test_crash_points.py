"""Killed or failed at every write and sync, or cut from power: nothing acknowledged is
lost."""

import random
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.store.crash.check import losses
from tests.store.crash.harness import Nursery, failed_at, killed_at, nursery
from tests.store.crash.powerloss import RECORDING, Disk, Op, read_log
from tests.tools import NO_STRACE

POINTS_MOST = 2_000
MORE_THAN_IT_CAN = 1_000_000
needs_strace = pytest.mark.skipif(
    bool(NO_STRACE), reason=NO_STRACE or "strace is there"
)


@pytest.fixture(scope="module")
def children() -> Iterator[Nursery]:
    with nursery() as one:
        yield one


def begin(children: Nursery, path: Path, how: str) -> int:
    """Lay a store to be worked on: none, one that was closed, or one that was cut off.
    How many rounds it has seen.
    """
    shutil.rmtree(path.parent, ignore_errors=True)
    path.parent.mkdir()
    if how == "fresh":
        return 0
    laid = children.run(path, [], rounds=3, close=how == "closed")
    assert laid.finished
    assert path.with_name("corral.db-wal").exists() == (how == "cut off")
    return 3


def kill_and_check(children: Nursery, path: Path, how: str, call: int) -> bool:
    """Whether the child got to its end before its call of that number."""
    seen = begin(children, path, how)
    ended = children.run(path, killed_at(call), rounds=3, first=seen + 1)
    assert ended.code in (0, -9), f"{how}, call {call}: exit {ended.code}"
    assert ended.finished or ended.code == -9
    assert losses(path, ended.acks) == [], f"{how}, killed at call {call}"
    return ended.finished


@needs_strace
@pytest.mark.parametrize("how", ["fresh", "closed", "cut off"])
def test_a_kill_at_some_writes_and_syncs_loses_nothing_acknowledged(
    children: Nursery, tmp_path: Path, how: str
) -> None:
    calls = [*range(1, 12, 2), *range(14, 400, 31)]
    finished = [
        kill_and_check(children, tmp_path / "s" / "corral.db", how, n) for n in calls
    ]
    assert not finished[0]
    assert finished.count(False) >= 8


@needs_strace
@pytest.mark.soak
@pytest.mark.parametrize("how", ["fresh", "closed", "cut off"])
def test_a_kill_at_every_write_and_sync_loses_nothing_acknowledged(
    children: Nursery, tmp_path: Path, how: str
) -> None:
    for call in range(1, POINTS_MOST):
        if kill_and_check(children, tmp_path / "s" / "corral.db", how, call):
            print(f"{how}: {call - 1} points, 0 losses")
            assert call > 100
            return
    pytest.fail("the child never got to its end")


def test_a_kill_at_any_moment_loses_nothing_acknowledged(
    children: Nursery, tmp_path: Path
) -> None:
    chance = random.Random(7)
    path = tmp_path / "s" / "corral.db"
    for _ in range(12):
        begin(children, path, "fresh")
        seconds = chance.uniform(0.0, 0.25)
        ended = children.run(
            path, [], rounds=MORE_THAN_IT_CAN, kill_after_seconds=seconds
        )
        assert ended.code == -9
        assert losses(path, ended.acks) == []


@needs_strace
@pytest.mark.parametrize(
    ("calls", "error"),
    [
        ("pwrite64", "ENOSPC"),
        ("pwrite64", "EIO"),
        ("fdatasync,fsync", "EIO"),
        ("pwrite64", "EROFS"),
    ],
)
@pytest.mark.parametrize("when", ["3..6", "9..20", "40..52"])
def test_a_disk_that_fails_for_a_while_is_trouble_and_then_the_store_goes_on(
    children: Nursery, tmp_path: Path, calls: str, error: str, when: str
) -> None:
    path = tmp_path / "s" / "corral.db"
    begin(children, path, "closed")
    ended = children.run(path, failed_at(calls, error, when), rounds=24, first=4)
    assert ended.finished
    kinds = [ack["ack"] for ack in ended.acks]
    # a checkpoint's trouble is only logged
    assert "trouble" in kinds or when == "40..52"
    assert kinds[-5:] == ["commit", "secret", "over", "forgotten", "end"]
    assert losses(path, ended.acks) == []


def record(children: Nursery, path: Path) -> list[Op]:
    begin(children, path, "fresh")
    log = path.with_name("log")
    assert children.run(
        path, [*RECORDING, "-o", str(log)], rounds=6, close=False
    ).finished
    return read_log(log.read_text())


def cuts(ops: list[Op], scratch: Path, *, each: int, step: int) -> Iterator[list[str]]:
    """What was lost at each power cut: `each` ways to lose at every `step`th call."""
    chance = random.Random(11)
    disk = Disk(directory=str(Path(ops[0].path).parent))
    for number, op in enumerate(ops):
        disk.take(op)
        if op.kind != "sync" and number % step:
            continue
        for _ in range(each):
            shutil.rmtree(scratch, ignore_errors=True)
            scratch.mkdir()
            disk.cut(chance, scratch)
            yield losses(scratch / "corral.db", disk.acks)


@needs_strace
def test_a_power_cut_loses_nothing_acknowledged(
    children: Nursery, tmp_path: Path
) -> None:
    ops = record(children, tmp_path / "s" / "corral.db")
    found = list(cuts(ops, tmp_path / "cut", each=2, step=17))
    assert len(found) > 60
    assert [lost for lost in found if lost] == []


@needs_strace
def test_the_power_cut_would_show_a_store_that_does_not_sync(
    children: Nursery, tmp_path: Path
) -> None:
    ops = record(children, tmp_path / "s" / "corral.db")
    unsynced = [op for op in ops if op.kind != "sync" or not op.path.endswith("-wal")]
    assert any(
        any("lost" in one for one in lost)
        for lost in seen_until_refused(unsynced, tmp_path)
    )


def seen_until_refused(ops: list[Op], tmp_path: Path) -> Iterator[list[str]]:
    from corral.domain.errors import StoreTrouble

    try:
        yield from cuts(ops, tmp_path / "cut", each=2, step=17)
    except StoreTrouble as trouble:  # not even whole any more
        yield [f"lost: {trouble}"]


@needs_strace
@pytest.mark.soak
def test_a_power_cut_at_every_call_loses_nothing_acknowledged(
    children: Nursery, tmp_path: Path
) -> None:
    ops = record(children, tmp_path / "s" / "corral.db")
    found = list(cuts(ops, tmp_path / "cut", each=6, step=1))
    print(f"{len(found)} power cuts, {sum(map(bool, found))} with losses")
    assert [lost for lost in found if lost] == []
