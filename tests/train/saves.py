"""Small saves of one rank, made in this process by the real saver."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import nn

from corral.domain.keep_rule import KeepRule
from corral.train.process_group import ProcessGroup
from corral.train.save.checkpoint_dir import Shelf
from corral.train.save.checkpoint_store import CheckpointStore
from corral.train.save.memory_tier import MemoryTier
from corral.train.save.restore import RestoreCandidate, load
from corral.train.save.saver import Saved, Saver
from corral.train.save.training_state import StateHolder

ALONE = ProcessGroup(rank=0, world_size=1)


def holder_at(step: int) -> StateHolder:
    """A model and an optimizer whose every number tells the step."""
    model = nn.Sequential(nn.Linear(24, 8), nn.Linear(8, 2))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    for parameter in model.parameters():
        nn.init.constant_(parameter, step)
        optimizer.state[parameter]["momentum_buffer"] = torch.full_like(
            parameter, -step
        )
    return StateHolder(model=model, optimizers=(optimizer,))


def saver_at(
    shelf: CheckpointStore,
    *,
    keep: int = 3,
    failed: Callable[[int, str], None] | None = None,
    memory: Path | None = None,
) -> tuple[Saver, list[Saved]]:
    saved: list[Saved] = []
    saver = Saver(
        shelf,
        keep=KeepRule(last=keep),
        talk=ALONE,
        quiet=ALONE,
        done=saved.append,
        failed=failed or fail,
        memory=MemoryTier.join(memory, shelf.attempt, ALONE),
    )
    return saver, saved


def fail(step: int, why: str) -> None:
    raise AssertionError(f"the save of step {step} failed: {why}")


def make_saves(root: Path, steps: list[int], *, attempt: int = 1) -> list[Saved]:
    shelf = Shelf(root=root, job="j1", attempt=attempt)
    shelf.open()
    saver, saved = saver_at(shelf, keep=100)
    for step in steps:
        holder = holder_at(step)
        saver.save(step, lambda step=step, holder=holder: capture(holder, step))  # type: ignore[misc]
        saver.wait()
    saver.close()
    return saved


def save_in_memory(saver: Saver, step: int) -> None:
    """Save the step in memory. The saver must be prepared."""
    holder = holder_at(step)
    saver.save(step, lambda: capture(holder, step), durable=False)
    saver.wait()


def prepare(saver: Saver) -> None:
    saver.prepare(capture(holder_at(0), 0))
    saver.wait()


def capture(holder: StateHolder, step: int) -> dict[str, Any]:
    return holder.capture(step=step, observed_seconds=0.0)


def candidate(saved: Saved) -> RestoreCandidate:
    return RestoreCandidate(
        attempt=saved.attempt,
        step=saved.step,
        path=saved.path,
        manifest_sha256=saved.manifest_sha256,
    )


def step_loaded(found: RestoreCandidate) -> int:
    """Load the save, and check that every number in it is of one and the same step."""
    holder = holder_at(-1)
    step = load(found, holder)["step"]
    assert isinstance(step, int)
    for parameter in holder.model.parameters():
        assert bool((parameter == step).all())
        assert bool(
            (holder.optimizers[0].state[parameter]["momentum_buffer"] == -step).all()
        )
    return step
