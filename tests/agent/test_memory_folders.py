"""The memory of a node that holds saves: who gets it, and when it is freed."""

import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from corral.agent.clocks import since_boot
from corral.agent.job_account import JobAccount
from corral.agent.keeping import memory_folders
from corral.agent.keeping.memory_folders import VARIABLE, MemoryFolders
from corral.domain.desired_state import Launch
from corral.domain.ids import JobId
from corral.domain.job import CheckpointRule
from corral.domain.node_policy import NodePolicy
from corral.domain.observed_state import Phase
from tests.agent.nodes import launch_of, node, write_policy
from tests.agent.test_apart import account

RULE = CheckpointRule(path="/shared/c")
J1, J2 = JobId("j1"), JobId("j2")


def saving(job: str, rule: CheckpointRule | None = RULE, attempt: int = 1) -> Launch:
    return replace(launch_of("true", job, attempt), checkpoint=rule)


@pytest.fixture
def memory(tmp_path: Path) -> MemoryFolders:
    (tmp_path / "dev" / "shm").mkdir(parents=True)
    return MemoryFolders(node_dir=tmp_path / "node", root=tmp_path)


def folders(memory: MemoryFolders) -> list[str]:
    return sorted(path.name for path in memory.root.glob("dev/shm/*/j*"))


def prepare(memory: MemoryFolders, launch: Launch, *present: JobId) -> dict[str, str]:
    return memory.prepare(launch, None, present=present)


def test_each_job_that_saves_gets_a_folder_that_its_next_attempt_finds(
    memory: MemoryFolders,
) -> None:
    path = prepare(memory, saving("j1"))[VARIABLE]
    (memory.root / path.lstrip("/") / "save").touch()
    memory.ended(J1, is_clean=False)
    assert prepare(memory, saving("j1", attempt=2))[VARIABLE] == path
    assert (memory.root / path.lstrip("/") / "save").exists()
    assert (memory.root / path.lstrip("/")).stat().st_mode & 0o777 == 0o700


@pytest.mark.parametrize("rule", [None, replace(RULE, local=False)])
def test_a_job_without_such_saves_gets_none_and_keeps_none(
    memory: MemoryFolders, rule: CheckpointRule | None
) -> None:
    prepare(memory, saving("j1"))
    assert prepare(memory, saving("j1", rule, attempt=2)) == {}
    assert folders(memory) == []


def test_memory_is_freed_at_a_good_end(memory: MemoryFolders) -> None:
    prepare(memory, saving("j1"))
    memory.ended(J1, is_clean=True)
    assert folders(memory) == []
    assert list((memory.root / "dev/shm").iterdir()) == []


def test_memory_is_freed_for_the_work_of_another_job(memory: MemoryFolders) -> None:
    prepare(memory, saving("j1"))
    prepare(memory, saving("j2"), J1)
    assert folders(memory) == ["j1", "j2"]
    memory.ended(J1, is_clean=False)
    prepare(memory, saving("j3"), J2)
    assert folders(memory) == ["j2", "j3"]


def test_memory_is_freed_when_no_next_attempt_comes(
    memory: MemoryFolders, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = since_boot()
    monkeypatch.setattr(memory_folders, "since_boot", lambda: now)
    prepare(memory, saving("j1"))
    memory.ended(J1, is_clean=False)
    now += memory_folders.WAIT_SECONDS - 1
    memory.free_waiting([])
    assert folders(memory) == ["j1"]
    now += 2
    memory.free_waiting([J1])  # it is back
    memory.free_waiting([])
    assert folders(memory) == ["j1"]
    now += memory_folders.WAIT_SECONDS + 1
    memory.free_waiting([])
    assert folders(memory) == []


def test_memory_of_a_node_that_is_gone_is_freed(
    memory: MemoryFolders, tmp_path: Path
) -> None:
    memory.node_dir.mkdir()
    prepare(memory, saving("j1"))
    other = MemoryFolders(node_dir=tmp_path / "other", root=memory.root)
    other.sweep()
    assert folders(memory) == ["j1"]
    memory.node_dir.rmdir()
    other.sweep()
    assert list((memory.root / "dev/shm").iterdir()) == []


def test_a_folder_that_another_account_has_made_is_not_used(
    memory: MemoryFolders, tmp_path: Path
) -> None:
    path = prepare(memory, saving("j1"))[VARIABLE]
    memory.free(J1)
    (tmp_path / "trap").mkdir()
    (memory.root / path.lstrip("/")).parent.symlink_to(tmp_path / "trap")
    assert prepare(memory, saving("j1")) == {}
    assert list((tmp_path / "trap").iterdir()) == []


WRITE = f'echo {"{}"} > "${VARIABLE}/save"; exit {"{}"}'


@pytest.fixture
def shared_memory(node_dir: Path) -> Iterator[Path]:
    memory = MemoryFolders(node_dir=node_dir)
    yield Path("/dev/shm") / memory._name
    memory.free_all()


async def test_the_next_attempt_of_a_job_finds_the_memory_of_the_last(
    node_dir: Path, shared_memory: Path
) -> None:
    async with node(node_dir) as here:
        for attempt, run in enumerate(
            (WRITE.format("first", 1), f'cat "${VARIABLE}/save"'), 1
        ):
            launch = replace(saving("j1", attempt=attempt), run=run)
            here.work(launch.key).mkdir(parents=True)
            await here.supervisor.launch(launch, here.work(launch.key), {})
            seen = await here.ended(launch.key)
            assert seen.phase == Phase.ENDED
            output = here.log(launch.key)
            here.supervisor.settle(launch.key)
        assert "first" in output
    assert not shared_memory.exists()


@pytest.mark.root
@pytest.mark.skipif(os.geteuid() != 0, reason="only root changes accounts")
@pytest.mark.parametrize("tmp", ["private", "shared"])
async def test_only_the_account_of_the_job_reaches_its_memory(
    node_dir: Path, shared_memory: Path, tmp: str
) -> None:
    for folder in (node_dir, node_dir / "attempts"):
        folder.chmod(0o755)
    (node_dir / "homes").mkdir(mode=0o711)
    write_policy(node_dir, NodePolicy(tmp=tmp))  # type: ignore[arg-type]
    async with node(node_dir) as here:
        owner = account(here.dir, "ann", 200_001)
        other = account(here.dir, "bob", 200_002)
        await run_as(here, "j1", WRITE.format("secret", 1), owner)
        path = shared_memory / "j1" / "save"
        assert path.stat().st_uid == owner.uid
        assert "secret" in await run_as(here, "j1", f'cat "${VARIABLE}/save"', owner, 2)
        assert "secret" not in await run_as(here, "j2", f"cat {path}", other)


async def run_as(here, job: str, run: str, user: JobAccount, attempt: int = 1) -> str:  # type: ignore[no-untyped-def]
    launch = replace(saving(job, attempt=attempt), run=run)
    here.work(launch.key).mkdir(parents=True)
    await here.supervisor.launch(launch, here.work(launch.key), {}, account=user)
    await here.ended(launch.key)
    return str(here.log(launch.key))
