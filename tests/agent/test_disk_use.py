"""The disk that an attempt's folder takes is bounded where users share a node."""

import asyncio
import os
from pathlib import Path

import pytest

from corral.agent import disk_use
from corral.agent.disk_use import folder_bytes, folders_of_users, overruns
from corral.agent.settings import SettingsInvalid
from corral.domain.ids import AttemptNumber, JobId
from corral.domain.node_policy import NodePolicy
from corral.domain.observed_state import AttemptKey, Phase
from tests.agent.nodes import launch_of, node
from tests.patience import PATIENCE_SECONDS

MIB = 1024**2
as_root = pytest.mark.skipif(
    os.geteuid() != 0, reason="only root gives folders to accounts"
)


def write(file: Path, mib: int) -> Path:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(os.urandom(mib * MIB))
    return file


def test_each_file_counts_once_and_links_lead_nowhere(tmp_path: Path) -> None:
    one = write(tmp_path / "attempt" / "work" / "a", 2)
    os.link(one, tmp_path / "attempt" / "b")
    far = write(tmp_path / "far", 3)
    (tmp_path / "attempt" / "far").symlink_to(far)
    (tmp_path / "attempt" / "up").symlink_to(tmp_path)
    taken = folder_bytes(str(tmp_path / "attempt"), 100 * MIB)
    assert 2 * MIB <= taken < 3 * MIB


def test_a_sparse_file_takes_what_it_holds(tmp_path: Path) -> None:
    with (tmp_path / "sparse").open("wb") as file:
        file.truncate(100 * MIB)
    assert folder_bytes(str(tmp_path), 1000 * MIB) < MIB


def test_no_more_is_counted_than_shows_that_the_limit_is_passed(tmp_path: Path) -> None:
    for number in range(6):
        write(tmp_path / str(number) / "file", 1)
    assert MIB < folder_bytes(str(tmp_path), MIB) <= 3 * MIB


def test_the_limit_is_half_of_the_disk_or_what_the_policy_says() -> None:
    assert NodePolicy().disk_limit_bytes(1000) == 500
    assert NodePolicy(disk="all").disk_limit_bytes(1000) is None
    assert NodePolicy(disk="2MiB").disk_limit_bytes(1000) == 2 * MIB
    for wrong in ("", "much", "0GB"):
        with pytest.raises(ValueError, match="size"):
            NodePolicy(disk=wrong)


@as_root
def test_an_attempt_of_a_user_above_the_limit_is_found_and_roots_own_is_not(
    tmp_path: Path,
) -> None:
    attempts = tmp_path / "attempts"
    for name, mib in (("j1.1", 3), ("j2.2", 1), ("j3.1", 3)):
        write(attempts / name / "work" / "file", mib)
    for name in ("j1.1", "j2.2"):
        os.chown(attempts / name / "work", 200_001, 200_001)
    (attempts / ".j4.1.gone").mkdir()
    first = (JobId("j1"), AttemptNumber(1))
    assert set(folders_of_users(attempts).values()) == {
        first,
        (JobId("j2"), AttemptNumber(2)),
    }
    found = asyncio.run(overruns(tmp_path, NodePolicy(disk="2MiB")))
    assert list(found) == [first]
    assert found[first].startswith("disk: ")
    broken = ("/bin/false",)  # asked only where the disk holds more than the limit
    assert asyncio.run(overruns(tmp_path, NodePolicy(disk="900TB"), broken)) == {}
    assert asyncio.run(overruns(tmp_path, NodePolicy(disk="all"), broken)) == {}


@as_root
async def test_looks_go_on_after_trouble(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    work = write(tmp_path / "attempts" / "j1.1" / "work" / "file", 3).parent
    os.chown(work, 200_001, 200_001)
    policies = iter([NodePolicy(disk="900TB")])
    found: list[AttemptKey] = []

    def policy() -> NodePolicy:
        """Wrong at first, then without effect, then a small limit."""
        if not looks:
            looks.append(1)
            raise SettingsInvalid("policy.json does not read", hint="correct it")
        return next(policies, NodePolicy(disk="1MiB"))

    looks: list[int] = []
    monkeypatch.setattr(disk_use, "LOOK_SECONDS", 0.01)
    ended = asyncio.Event()

    def overrun(key: AttemptKey, why: str) -> None:
        found.append(key)
        ended.set()

    task = asyncio.create_task(disk_use.keep_bounded(tmp_path, policy, overrun))
    async with asyncio.timeout(PATIENCE_SECONDS):
        await ended.wait()
    task.cancel()
    assert found[0] == (JobId("j1"), AttemptNumber(1))


async def test_what_takes_too_much_ends_by_its_own_fault(node_dir: Path) -> None:
    async with node(node_dir) as here:
        key = await here.launch(launch_of("sleep 600"))
        await here.phase(key, Phase.UP)
        here.supervisor.overrun(key, "disk: too much")
        seen = await here.ended(key)
        assert (seen.trouble, seen.trouble_is_infra) == ("disk: too much", False)
        here.supervisor.overrun((JobId("j9"), AttemptNumber(1)), "disk: none")
