"""Samples of the ranks of an attempt that makes no steps, from outside: their stacks and
counters, several times in a row."""

import asyncio
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from corral.agent.watching.process_counters import RankCounters, read_counters
from corral.agent.watching.rank_reports import RankReport
from corral.agent.watching.stack_reader import MAIN_THREAD, read_stacks
from corral.domain.process_stacks import (
    ProcessRole,
    ProcessStacks,
    StackFrame,
    ThreadStack,
)
from corral.health.stall_places import waits_for_ranks

SAMPLES: Final = 7
LOOK_SECONDS: Final = 2.1  # between the first and the last sample
Reports = Mapping[int, RankReport]


@dataclass(frozen=True, slots=True, kw_only=True)
class RankSample:
    """State of the processes of an attempt at one moment. `counters` are by process id;
    a process that has ended since has none."""

    at: float
    stacks: tuple[ProcessStacks, ...]
    counters: Mapping[int, RankCounters]

    @property
    def ranks(self) -> dict[int, ProcessStacks]:
        """Return the processes of ranks, by rank. If several have one number, the first
        counts."""
        ranks: dict[int, ProcessStacks] = {}
        for process in self.stacks:
            if process.role is ProcessRole.RANK and process.rank is not None:
                ranks.setdefault(process.rank, process)
        return ranks

    def workers_of(self, rank: int) -> list[ProcessStacks]:
        """Return the processes that work for the rank, such as those that load data."""
        return [
            process
            for process in self.stacks
            if process.role is ProcessRole.WORKER and process.rank == rank
        ]


def main_frames(process: ProcessStacks) -> tuple[StackFrame, ...]:
    """Return the calls of the main thread; empty if they could not be read."""
    thread = process.main_thread
    return () if thread is None else thread.frames


async def take_samples(attempt_folder: Path, reports: Reports) -> list[RankSample]:
    """Return SAMPLES samples over LOOK_SECONDS. The first and the last have all ranks,
    and the processes that work for ranks that do not wait for others; those between
    have only such ranks."""
    began = time.monotonic()
    first = await _sample(attempt_folder, reports, _is_rank)
    outside = {
        rank
        for rank, process in first.ranks.items()
        if not waits_for_ranks(main_frames(process))
    }

    def is_in_whole(role: ProcessRole, rank: int | None) -> bool:
        return role is ProcessRole.RANK or (
            role is ProcessRole.WORKER and rank in outside
        )

    def is_outside(role: ProcessRole, rank: int | None) -> bool:
        return role is ProcessRole.RANK and rank in outside

    if outside:
        first = await _sample(attempt_folder, reports, is_in_whole)
    samples = [first]
    for index in range(1, SAMPLES):
        due = began + LOOK_SECONDS * index / (SAMPLES - 1)
        await asyncio.sleep(max(0.0, due - time.monotonic()))
        is_wanted = is_in_whole if index == SAMPLES - 1 else is_outside
        samples.append(await _sample(attempt_folder, reports, is_wanted))
    return samples


def _is_rank(role: ProcessRole, rank: int | None) -> bool:
    return role is ProcessRole.RANK


async def _sample(
    attempt_folder: Path,
    reports: Reports,
    is_wanted: Callable[[ProcessRole, int | None], bool],
) -> RankSample:
    at = time.monotonic()
    stacks = await read_stacks(attempt_folder, is_wanted)
    pids = [process.pid for process in stacks]
    return RankSample(
        at=at,
        stacks=tuple(_with_reported_frames(process, reports) for process in stacks),
        counters=await asyncio.to_thread(_read_all_counters, pids),
    )


def _read_all_counters(pids: Collection[int]) -> dict[int, RankCounters]:
    counters = {pid: read_counters(pid) for pid in pids}
    return {pid: read for pid, read in counters.items() if read is not None}


def _with_reported_frames(process: ProcessStacks, reports: Reports) -> ProcessStacks:
    """Return the process with the calls that it has reported itself, where they could
    not be read from outside. One that holds Python's lock reports none."""
    report = None if process.rank is None else reports.get(process.rank)
    if process.threads or report is None or process.role is not ProcessRole.RANK:
        return process
    thread = ThreadStack(name=MAIN_THREAD, frames=report.frames, is_main=True)
    return replace(process, threads=(thread,) if report.frames else ())
