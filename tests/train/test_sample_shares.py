"""The global batch is the same for any number of ranks."""

import json
import os
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from corral.train.data.data_feed import DataFeed, NoPasses
from corral.train.data.sample_shares import BatchDivision
from corral.train.data.sampler import Sampler
from corral.train.step_timer import Meter
from tests.train.support import World

LENGTH = 130
GLOBAL_BATCH = 10
MICRO_BATCH = 2
STEPS = 50
# (ranks, first step that another size does)
RESIZES = ((4, 12), (2, 25), (4, 38), (3, STEPS))


@given(
    global_batch=st.integers(1, 70),
    world_size=st.integers(1, 9),
    micro_batch=st.none() | st.integers(1, 20),
)
def test_shares_are_even_to_one_sample_and_passes_are_equally_many(
    global_batch: int, world_size: int, micro_batch: int | None
) -> None:
    division = BatchDivision(
        global_batch=global_batch, world_size=world_size, micro_batch=micro_batch
    )
    by_rank = [division.ranges_of(rank) for rank in range(world_size)]
    samples = [
        part.start + index
        for ranges in by_rank
        for part in ranges
        for index in range(part.count)
    ]
    shares = [sum(part.count for part in ranges) for ranges in by_rank]
    assert samples == list(range(global_batch))
    assert max(shares) - min(shares) <= 1
    assert {len(ranges) for ranges in by_rank} == {division.passes}
    largest = max(part.count for ranges in by_rank for part in ranges)
    assert largest <= (micro_batch or global_batch)
    assert all(0 <= part.start < global_batch for part in by_rank[-1])
    weights = [division.weight(part.count) for ranges in by_rank for part in ranges]
    assert sum(weights) / world_size == pytest.approx(1.0)


@pytest.mark.parametrize("sizes", [{}, {"batch_size": 2, "global_batch": 4}])
def test_a_sampler_has_one_size_of_its_batch(sizes: dict[str, int]) -> None:
    with pytest.raises(ValueError, match="exactly one"):
        Sampler(10, rank=0, world_size=1, **sizes)


def test_data_without_passes_is_refused_with_the_sampler_to_use() -> None:
    feed = DataFeed(None, None, torch.device("cpu"), _meter)
    with pytest.raises(NoPasses, match="Sampler"):
        next(feed.micro_batches(iter([])))


def test_a_position_advances_when_the_last_pass_of_a_step_is_taken() -> None:
    sampler = Sampler(40, global_batch=10, micro_batch=2, rank=1, world_size=3)
    feed = DataFeed(sampler, None, torch.device("cpu"), _meter)
    batches = feed.batches(sampler, to_device=False)
    taken = [next(batches)]
    assert sampler.consumed == 0
    taken.append(next(batches))
    assert sampler.consumed == 10
    assert [len(batch) for batch in taken] == [2, 1]


def _meter() -> Meter:
    return Meter(first_step=0, until=1, world_size=1)


@pytest.mark.parametrize(
    "sizes", [((1, STEPS),), ((2, STEPS),), ((3, STEPS),), RESIZES]
)
def test_gangs_of_any_sizes_train_as_one_process(
    world: World, sizes: Sequence[tuple[int, int]]
) -> None:
    saves: list[dict[str, Any]] = []
    for attempt, (ranks, steps) in enumerate(sizes, start=1):
        gang = world.launch(
            attempt,
            ranks,
            job="tests.train.test_sample_shares:train_fp64",
            resume=saves,
            interval="1000",
            steps=steps,
        )
        assert gang.wait() == [0] * ranks, gang.log()
        saves = world.complete()
    losses = np.zeros(STEPS)
    seen: list[list[int]] = [[] for _ in range(STEPS)]
    for path in world.out.glob("notes-*"):
        for line in path.read_text().splitlines():
            step, loss, indices = json.loads(line)
            losses[step] += loss
            seen[step] += indices
    stream = [index for batch in islice(_one_process(), STEPS) for index in batch]
    in_order = [sorted(stream[at : at + GLOBAL_BATCH]) for at in _starts(STEPS)]
    assert [sorted(indices) for indices in seen] == in_order
    assert np.abs(losses - _losses_of_one_process()).max() < 1e-9


def _starts(steps: int) -> Iterator[int]:
    yield from range(0, steps * GLOBAL_BATCH, GLOBAL_BATCH)


def _one_process() -> Iterator[list[int]]:
    sampler = Sampler(LENGTH, global_batch=GLOBAL_BATCH, seed=5, rank=0, world_size=1)
    return iter(sampler)


def _losses_of_one_process() -> list[float]:
    model, data, optimizer = _fp64_parts()
    losses = []
    for batch in islice(_one_process(), STEPS):
        loss = model(data[batch]).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def _fp64_parts() -> tuple[nn.Module, torch.Tensor, torch.optim.Optimizer]:
    torch.manual_seed(2)
    model = nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 1)).double()
    data = torch.randn(LENGTH, 6, dtype=torch.float64)
    return model, data, torch.optim.AdamW(model.parameters(), lr=0.01)


def train_fp64() -> None:
    """A rank of the gangs above: notes its part of each loss, and its samples."""
    import corral.train as train

    settings = json.loads(os.environ["SMALL"])
    run = train.start()
    bare_model, data, _ = _fp64_parts()
    model = nn.parallel.DistributedDataParallel(bare_model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    sampler = train.Sampler(
        LENGTH, seed=5, global_batch=GLOBAL_BATCH, micro_batch=MICRO_BATCH
    )
    run.resume(model=model, optimizer=optimizer, data=sampler)
    batches = run.data(sampler)
    path = Path(settings["out"]) / f"notes-{os.environ['CORRAL_ATTEMPT']}-{run.rank}"
    with path.open("w") as notes:
        for step in run.steps(until=settings["steps"]):
            optimizer.zero_grad()
            part = 0.0
            indices: list[int] = []
            for micro in run.micro_batches(batches):
                loss = model(data[micro.batch]).square().mean() * micro.weight
                loss.backward()
                part += loss.item() / run.world_size
                indices += micro.batch[: micro.samples]
            optimizer.step()
            notes.write(json.dumps([step, part, indices]) + "\n")
