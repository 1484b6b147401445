"""Saves in memory of a process that is killed at any of its calls, whose helper is
killed, or whose files change: no save that is loaded is torn."""

import os
import random
import shutil
import signal
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from corral.train.save import staging
from corral.train.save.checkpoint_dir import Shelf
from corral.train.save.copy_helper import CopyHelper
from corral.train.save.copy_program import CHUNK_BYTES, FileCopy
from corral.train.save.manifest import digest
from corral.train.save.memory_folder import MemoryFolder, MemorySave
from corral.train.save.memory_restore import (
    FileRequest,
    choose_in_memory,
    plan_transfers,
    whole_saves,
)
from corral.train.save.memory_tier import MemoryTier
from corral.train.save.restore import RestoreCandidate
from corral.train.save.saver import Saved, Saver
from tests.tools import NO_STRACE
from tests.train.saves import (
    ALONE,
    candidate,
    holder_at,
    make_saves,
    prepare,
    save_in_memory,
    saver_at,
    step_loaded,
)
from tests.train.support import Zygote, wait_for
from tests.train.test_crash_points import end_of, let_go, state_of

pytestmark = pytest.mark.train
POINTS = ["openat", "write", "rename", "unlink", "fallocate", "mmap"]


@pytest.fixture
def memory() -> Iterator[Path]:
    root = Path(tempfile.mkdtemp(prefix="corral-test-", dir="/dev/shm"))
    yield root
    shutil.rmtree(root)


@pytest.fixture
def small_files(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(staging, "FILE_BYTES", 400)


def saver_in(
    tmp_path: Path, memory: Path, attempt: int = 1
) -> tuple[Saver, list[Saved]]:
    shelf = Shelf(root=tmp_path / "saves", job="j1", attempt=attempt)
    shelf.open()
    saver, saved = saver_at(shelf, memory=memory)
    prepare(saver)
    return saver, saved


def make_memory_saves(tmp_path: Path, memory: Path, steps: list[int]) -> None:
    saver, _ = saver_in(tmp_path, memory)
    for step in steps:
        save_in_memory(saver, step)
    saver.close()


def resumed(
    memory: Path, attempt: int = 2, durable: list[RestoreCandidate] | None = None
) -> int | None:
    """The step that the next attempt resumes at from memory, with all of its numbers
    right."""
    tier = MemoryTier.join(memory, attempt, ALONE)
    save = choose_in_memory(tier, durable or [], holder_at(-1), ALONE)
    return None if save is None else step_loaded(save)


@pytest.mark.skipif(bool(NO_STRACE), reason=NO_STRACE or "strace is there")
@pytest.mark.parametrize("calls", POINTS)
def test_killed_at_any_call_a_whole_save_in_memory_loads(
    zygote: Zygote, tmp_path: Path, memory: Path, calls: str
) -> None:
    kills = 0
    for count in range(1, 60):
        root, node = tmp_path / f"{count}", memory / f"{count}"
        root.mkdir()
        node.mkdir()
        env = {"SAVES": str(root / "saves"), "MEMORY": str(node)}
        env |= {"ATTEMPT": "1", "STEP": "30"}
        pid = zygote.fork("jobs:save_in_memory_once", env, root / "log")
        wait_for(lambda pid=pid: state_of(pid) in "Tt", "it stops")  # type: ignore[misc]
        let_go(pid, calls, f"signal=KILL:when={count}")
        ended = wait_for(lambda pid=pid: end_of(zygote, pid), "it ends")  # type: ignore[misc]
        if ended == "0":
            assert resumed(node) == 30
            break
        kills += 1
        assert ended == str(-signal.SIGKILL), (root / "log").read_text()
        assert resumed(node) in (20, 30)
    else:
        raise AssertionError(f"{calls} are made for ever")
    assert kills >= 1, f"no {calls} was met"


def test_a_save_that_is_being_staged_leaves_the_one_before_it(
    tmp_path: Path, memory: Path
) -> None:
    saver, _ = saver_in(tmp_path, memory)
    save_in_memory(saver, 10)
    save_in_memory(saver, 20)
    assert saver.memory is not None
    state = holder_at(30).capture(step=30, observed_seconds=0.0)
    saver.memory.staging.take(state, saver._items)  # and dies
    assert resumed(memory) == 20
    saver.close()


CHANGES: dict[str, Callable[[Path], object]] = {
    "cut": lambda path: os.truncate(path, path.stat().st_size - 1),
    "longer": lambda path: os.truncate(path, path.stat().st_size + 1),
    "gone": lambda path: path.unlink(),
}


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.usefixtures("small_files")
def test_a_file_that_is_not_whole_is_seen(
    tmp_path: Path, memory: Path, change: str
) -> None:
    make_memory_saves(tmp_path, memory, [10])
    save = the_save(memory)
    for name in [*sorted(save.needed), "manifest.json"]:
        copy = memory.with_name(f"{memory.name}-copy")
        shutil.copytree(memory, copy)
        try:
            CHANGES[change](copy / save.directory.relative_to(memory) / name)
            assert resumed(copy) is None, name
        finally:
            shutil.rmtree(copy)


@pytest.mark.usefixtures("small_files")
def test_each_flipped_byte_is_seen(tmp_path: Path, memory: Path) -> None:
    make_memory_saves(tmp_path, memory, [10])
    save = the_save(memory)
    random_source = random.Random(5)
    for name in [*sorted(save.needed), "manifest.json"]:
        path = save.directory / name
        whole = path.read_bytes()
        for _ in range(12):
            place = random_source.randrange(len(whole))
            data = bytearray(whole)
            data[place] ^= 1 << random_source.randrange(8)
            path.write_bytes(data)
            assert not loads(memory), f"{name} at {place}"
        path.write_bytes(whole)
    assert loads(memory)


def loads(memory: Path) -> bool:
    """Whether the save is used, without freeing it."""
    tier = MemoryTier.join(memory, 1, ALONE)
    return choose_in_memory(tier, [], holder_at(-1), ALONE) is not None


def the_save(memory: Path) -> MemorySave:
    return MemoryFolder(root=memory, attempt=9).saves()[0]


def test_an_older_attempt_publishes_no_more(tmp_path: Path, memory: Path) -> None:
    """On its node, or anywhere that it can see the durable saves."""
    failures: list[str] = []
    shelf = Shelf(root=tmp_path / "saves", job="j1", attempt=1)
    shelf.open()
    saver, _ = saver_at(
        shelf, failed=lambda step, why: failures.append(why), memory=memory
    )
    prepare(saver)
    save_in_memory(saver, 10)
    newer = MemoryFolder(root=memory, attempt=2)
    newer.open()
    save_in_memory(saver, 20)
    assert "attempt 2 has begun" in failures.pop()
    newer.directory.rmdir()
    Shelf(root=tmp_path / "saves", job="j1", attempt=3).open()
    save_in_memory(saver, 30)
    assert "attempt 3 has begun" in failures.pop()
    saver.close()
    assert the_save(memory).step == 10


def test_memory_of_an_older_attempt_than_the_newest_durable_save_is_not_used(
    tmp_path: Path, memory: Path
) -> None:
    make_memory_saves(tmp_path, memory, [50])
    (durable,) = make_saves(tmp_path / "saves", [40], attempt=2)
    assert resumed(memory, attempt=3, durable=[candidate(durable)]) is None
    # freed, too
    assert not list(memory.glob("attempt-1"))


def test_a_durable_save_is_also_in_memory(tmp_path: Path, memory: Path) -> None:
    saver, saved = saver_in(tmp_path, memory)
    holder = holder_at(10)
    saver.save(10, lambda: holder.capture(step=10, observed_seconds=0.0))
    saver.wait()
    saver.close()
    assert the_save(memory).manifest_sha256 == saved[0].manifest_sha256
    assert step_loaded(candidate(saved[0])) == 10
    assert resumed(memory, durable=[candidate(saved[0])]) == 10


def test_without_room_all_saves_are_durable_and_the_numbers_are_said(
    tmp_path: Path,
    memory: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(
        "corral.train.save.memory_tier.free_memory_bytes", lambda folder: 1000
    )
    saver, saved = saver_in(tmp_path, memory)
    assert saver.memory is None
    assert "may be used; durable saves go on" in capsys.readouterr().err
    save_in_memory(saver, 10)
    saver.close()
    assert [save.step for save in saved] == [10]
    assert not [path for path in memory.rglob("*") if path.is_file()]


def test_a_helper_that_is_killed_costs_no_save(tmp_path: Path, memory: Path) -> None:
    saver, _ = saver_in(tmp_path, memory)
    for step in (10, 20):
        assert saver._helper.pid is not None
        os.kill(saver._helper.pid, signal.SIGKILL)
        save_in_memory(saver, step)
        assert the_save(memory).step == step
    saver.close()
    assert saver._helper.pid is None


def test_the_helper_says_why_a_file_cannot_be_copied(tmp_path: Path) -> None:
    helper = CopyHelper()
    source = tmp_path / "a"
    source.write_bytes(b"12345")
    target = tmp_path / "b"
    assert helper.copy([FileCopy(str(source), 5, str(target))]) == [digest(b"12345")]
    assert target.read_bytes() == b"12345"
    pid = helper.pid
    with pytest.raises(OSError, match="fewer than 6 bytes"):
        helper.copy([FileCopy(str(source), 6, str(target))])
    with pytest.raises(FileNotFoundError):
        helper.copy([FileCopy(str(source), 5, str(tmp_path / "no" / "b"))])
    assert helper.pid == pid
    helper.close()


def test_the_helper_keeps_the_cap_on_what_is_written(tmp_path: Path) -> None:
    source = tmp_path / "a"
    size = 2 * CHUNK_BYTES
    source.write_bytes(bytes(size))
    helper = CopyHelper()
    helper.start()
    began = time.monotonic()
    helper.copy([FileCopy(str(source), size, str(tmp_path / "b"), 4.0 * size)])
    assert time.monotonic() - began >= 0.25
    helper.close()


def test_a_save_is_whole_only_if_the_nodes_have_all_files_together() -> None:
    def save(attempt: int, step: int, *present: str, sha: str = "x") -> MemorySave:
        return MemorySave(
            attempt=attempt,
            step=step,
            manifest_sha256=sha,
            directory=Path("slot"),
            present=frozenset(present),
            needed=frozenset("ab"),
        )

    both = [("n1", [save(1, 5, "a")]), ("n2", [save(1, 5, "b")])]
    assert whole_saves(both, (0, 0)) == [(1, 5, "x")]
    assert whole_saves(both, (1, 5)) == [(1, 5, "x")]
    assert whole_saves(both, (1, 6)) == []
    assert whole_saves(both, (2, 1)) == []
    assert whole_saves([*both, ("n3", [])], (0, 0)) == []
    half = [("n1", [save(1, 5, "a")]), ("n2", [save(1, 5, "a")])]
    assert whole_saves(half, (0, 0)) == []
    torn = [("n1", [save(1, 5, "a")]), ("n2", [save(1, 5, "b", sha="y")])]
    assert whole_saves(torn, (0, 0)) == []
    newer = [("n1", [save(1, 9, "a", "b"), save(2, 3, "a", "b")])]
    assert whole_saves(newer, (0, 0)) == [(2, 3, "x"), (1, 9, "x")]


def test_a_job_that_went_back_uses_no_memory_of_passed_over_attempts(
    tmp_path: Path, memory: Path
) -> None:
    make_memory_saves(tmp_path, memory, [10])
    tier = MemoryTier.join(memory, 2, ALONE, passed_over_attempt=1)
    assert choose_in_memory(tier, [], holder_at(-1), ALONE) is None


def test_files_are_sent_to_the_nodes_that_read_them() -> None:
    def rank(node: str, leads: bool, present: str, read: str) -> FileRequest:
        return FileRequest(
            node=node, leads=leads, present=frozenset(present), read=frozenset(read)
        )

    requests = [
        rank("n1", True, "ab", "a"),
        rank("n1", False, "ab", "c"),
        rank("n2", True, "c", "a"),
        rank("n2", False, "c", "c"),
        rank("n3", True, "c", "a"),
    ]
    transfers = plan_transfers(requests)
    assert [(one.name, one.sender, set(one.receivers)) for one in transfers] == [
        ("a", 0, {2, 4}),
        ("c", 2, {0}),
    ]
