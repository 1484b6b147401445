"""Saves in the memory of the nodes: what ranks that die lose, and what is never loaded."""

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from corral.train.save.memory_folder import MemoryFolder, MemorySave
from tests.train.support import Gang, World, wait_for
from tests.train.test_gang import helper_of

pytestmark = pytest.mark.train
NEVER = "3600"  # no durable save before the end
OFTEN = {"CORRAL_NODE_MTBF_SECONDS": "1"}  # saves in memory as often as they may be
LONG: dict[str, Any] = {"steps": 100_000, "pause_seconds": 0.002, "notes": False}


@pytest.fixture
def memories() -> Iterator[list[Path]]:
    """The memory of two nodes."""
    root = Path(tempfile.mkdtemp(prefix="corral-test-", dir="/dev/shm"))
    nodes = [root / "a", root / "b"]
    for node in nodes:
        node.mkdir()
    yield nodes
    shutil.rmtree(root)


def newest(node: Path, attempt: int = 9) -> MemorySave | None:
    saves = MemoryFolder(root=node, attempt=attempt).saves()
    return saves[0] if saves else None


def killed_after_saves(world: World, nodes: list[Path], **launch: Any) -> int:
    """Train until both slots have been used, kill all ranks, and return the step of the
    newest save in memory."""
    gang = world.launch(1, memories=nodes, interval=NEVER, env=OFTEN, **(LONG | launch))
    first = wait_for(lambda: newest(nodes[0]), f"a save in memory: {gang.log()}")
    wait_for(
        lambda: (save := newest(nodes[0])) and save.step > first.step, "a second one"
    )
    gang.kill()
    gang.wait()
    assert not world.complete()
    save = newest(nodes[0])
    assert save is not None
    return save.step


def finished(world: World, gang: Gang) -> None:
    assert gang.wait() == [0] * len(gang.pids), gang.log()
    assert world.is_done()


@pytest.mark.parametrize("model", ["ddp", "fsdp"])
@pytest.mark.parametrize("node_count", [1, 2])
def test_ranks_that_die_lose_no_step_of_the_newest_save_in_memory(
    world: World, memories: list[Path], model: str, node_count: int
) -> None:
    nodes = memories[:node_count]
    step = killed_after_saves(world, nodes, model=model)
    again = world.launch(
        2, memories=nodes, interval=NEVER, model=model, steps=step + 5, notes=False
    )
    finished(world, again)
    assert world.resumed_at() == step
    undisturbed = World(world.zygote, world.out / "undisturbed")
    undisturbed.out.mkdir()
    finished(
        undisturbed,
        undisturbed.launch(1, model=model, steps=step + 5, notes=False),
    )
    assert world.result() == undisturbed.result()
    assert not any(path.is_file() for node in nodes for path in node.rglob("*"))


@pytest.mark.parametrize("model", ["ddp", "fsdp"])
def test_a_gang_of_another_size_resumes_from_the_memory_of_its_node(
    world: World, memories: list[Path], model: str
) -> None:
    nodes = memories[:1]
    step = killed_after_saves(world, nodes, model=model)
    again = world.launch(
        2,
        1,
        memories=nodes,
        interval=NEVER,
        model=model,
        steps=step + 5,
        notes=False,
    )
    finished(world, again)
    assert world.resumed_at() == step


def test_a_gang_with_a_new_node_resumes_from_the_durable_save(
    world: World, memories: list[Path]
) -> None:
    gang = world.launch(1, memories=memories, interval="0.3", env=OFTEN, **LONG)
    saved = wait_for(world.complete, "a durable save")[-1]["step"]
    wait_for(
        lambda: (save := newest(memories[0])) and save.step > saved, "one in memory"
    )
    gang.kill()
    gang.wait()
    shutil.rmtree(memories[1])  # with its node
    memories[1].mkdir()
    resume = world.complete()
    again = world.launch(
        2,
        memories=memories,
        interval=NEVER,
        resume=resume,
        steps=resume[0]["step"] + 5,
        notes=False,
    )
    finished(world, again)
    assert world.resumed_at() == resume[0]["step"]


def test_nothing_of_a_gang_that_is_killed_goes_on(
    world: World, memories: list[Path]
) -> None:
    gang = world.launch(1, memories=memories, interval=NEVER, env=OFTEN, **LONG)
    wait_for(lambda: newest(memories[0]), "a save in memory")
    helpers = [helper_of(pid) for pid in gang.pids]
    gang.kill()
    gang.wait()
    wait_for(
        lambda: not any(Path(f"/proc/{pid}/fd/0").exists() for pid in helpers),
        "the helpers end",
    )
