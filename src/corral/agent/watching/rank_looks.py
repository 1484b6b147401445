"""Looks at the ranks of an attempt that makes no steps, from samples: where each stands,
and whether it works."""

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from corral.agent.watching.process_counters import TRACED, RankCounters
from corral.agent.watching.rank_reports import RankReport
from corral.agent.watching.rank_samples import RankSample, main_frames
from corral.domain.hang import MOST_RANK_LOOKS, RankLook, RankState, StallPhase
from corral.domain.process_stacks import ProcessStacks
from corral.health.stall_places import (
    call_chain,
    phase_of,
    place_of,
    waits_for_a_person,
    waits_for_ranks,
)

# A process that does more than this between the first and the last sample works.
BUSY_IO_BYTES: Final = 256 * 1024
BUSY_FAULTS: Final = 200
BUSY_SWITCHES: Final = 60
# Samples of a process that had less CPU time than this may all show the same moment.
LEAST_CPU_SECONDS: Final = 0.1
# A sleep that ends within this time is a pause and no hang, if it is not repeated.
SLEEP_SECONDS: Final = 60.0
SAME_SLEEP_SECONDS: Final = 0.01


@dataclass(slots=True)
class Sleeps:
    """Sleeps that were seen during one stall, by process. A process that sleeps again
    and again waits for something that does not come."""

    _ends: dict[int, set[float]] = field(default_factory=lambda: defaultdict(set))

    def is_pause(self, pid: int, counters: Sequence[RankCounters]) -> bool:
        """Return whether the process sleeps once, and wakes soon.

        Args:
            counters: Counters of the process in a round of samples, in their order.
        """
        ends = self._ends[pid]
        for sample in counters:
            end = sample.sleep_ends
            if end is not None and not any(
                abs(end - other) < SAME_SLEEP_SECONDS for other in ends
            ):
                ends.add(end)
        return len(ends) == 1 and all(
            sample.sleep_ends is not None for sample in counters
        )

    def clear(self) -> None:
        """Forget the sleeps, after a step."""
        self._ends.clear()


@dataclass(frozen=True, slots=True, kw_only=True)
class LookRound:
    """Result of one round of samples.

    Args:
        looks: The two looks.
        phase: Phase of the ranks that do not wait for others.
        has_moved: A rank that does not wait for others has worked in this time.
        cannot_read: Why stacks could not be read; "" otherwise.
    """

    looks: tuple[tuple[RankLook, ...], tuple[RankLook, ...]]
    phase: StallPhase
    has_moved: bool
    cannot_read: str


def look_round(
    samples: Sequence[RankSample],
    *,
    reports: Mapping[int, RankReport],
    sleeps: Sleeps,
    steps: Mapping[int, int],
    ended_ranks: Collection[int] = (),
) -> LookRound:
    """Return the looks at all ranks of the node.

    Args:
        samples: The first and the last have all ranks.
        reports: What ranks have reported themselves.
        sleeps: Sleeps since the newest step.
        steps: Newest steps of ranks that report their progress.
        ended_ranks: Ranks whose process has ended.
    """
    first, last = samples[0], samples[-1]
    ranks = sorted(first.ranks.keys() | last.ranks.keys())[:MOST_RANK_LOOKS]
    looks = []
    for sample in (first, last):
        present = [
            _look(sample, rank, reports.get(rank), steps)
            for rank in ranks
            if rank in sample.ranks
        ]
        absent = [
            RankLook(rank=rank, pid=0, step=steps.get(rank, 0), state=RankState.ABSENT)
            for rank in sorted(set(ended_ranks) - set(ranks))
        ]
        looks.append((*present, *absent)[:MOST_RANK_LOOKS])
    moved = {rank for rank in ranks if _has_moved(samples, rank)}
    resting = {rank for rank in ranks if _is_resting(samples, rank, sleeps)}
    outside = [look for look in looks[1] if not look.is_in_collective]
    return LookRound(
        looks=(
            looks[0],
            tuple(
                replace(look, is_busy=look.rank in moved | resting) for look in looks[1]
            ),
        ),
        phase=_phase(last, [look.rank for look in outside if look.rank in last.ranks]),
        has_moved=any(look.rank in moved for look in outside),
        cannot_read=next(
            (process.trouble for process in last.ranks.values() if process.trouble), ""
        ),
    )


def _look(
    sample: RankSample,
    rank: int,
    report: RankReport | None,
    steps: Mapping[int, int],
) -> RankLook:
    process = sample.ranks[rank]
    counters = sample.counters.get(process.pid)
    state = RankState.ABSENT if counters is None else counters.rank_state
    collectives = () if report is None else report.collectives
    number, operation = collectives[-1] if collectives else (None, "")
    is_pending = report is not None and report.is_pending is True
    return RankLook(
        rank=rank,
        pid=process.pid,
        step=steps.get(rank, 0 if report is None else report.step),
        state=state,
        frame=_frame(sample, rank),
        is_in_collective=is_pending or _waits_for_ranks(sample, rank),
        collective=number,
        operation=operation,
    )


def _waits_for_ranks(sample: RankSample, rank: int) -> bool:
    """Return whether a rank, or a process that it has started to train, waits for other
    ranks."""
    processes = (sample.ranks[rank], *sample.workers_of(rank))
    return any(waits_for_ranks(main_frames(process)) for process in processes)


def _frame(sample: RankSample, rank: int) -> str:
    """Return where a rank stands. If it waits for processes that load its data, it is
    the place of one of those that stands in the user's code."""
    frames = main_frames(sample.ranks[rank])
    if phase_of(frames) is StallPhase.DATA:
        for worker in sample.workers_of(rank):
            worker_frames = main_frames(worker)
            if worker_frames and phase_of(worker_frames[:1]) is not StallPhase.DATA:
                return place_of(worker_frames)
    return place_of(frames)


def _phase(sample: RankSample, outside: Sequence[int]) -> StallPhase:
    """Return the phase of the ranks that do not wait for others, the longest one."""
    phases = {phase_of(main_frames(sample.ranks[rank])) for rank in outside}
    order = (StallPhase.SAVE, StallPhase.EVALUATE, StallPhase.DATA)
    return next((phase for phase in order if phase in phases), StallPhase.COMPUTE)


# --- whether it works


def _has_moved(samples: Sequence[RankSample], rank: int) -> bool:
    """Return whether a rank, or a process that works for it, has worked."""
    pids = {sample.ranks[rank].pid for sample in samples if rank in sample.ranks}
    if len(pids) != 1:
        return bool(pids)
    workers = {worker.pid for sample in samples for worker in sample.workers_of(rank)}
    return any(_process_moved(samples, pid) for pid in (*pids, *workers))


def _process_moved(samples: Sequence[RankSample], pid: int) -> bool:
    counters = [sample.counters[pid] for sample in samples if pid in sample.counters]
    stacks = [_stack(sample, pid) for sample in samples]
    frames = [main_frames(stack) for stack in stacks if stack is not None]
    if not counters or counters[-1].rank_state is RankState.STOPPED:
        return bool(counters) and counters[-1].state == TRACED
    if any(waits_for_a_person(calls) for calls in frames):
        return True
    first, last = counters[0], counters[-1]
    if last.io_bytes - first.io_bytes > BUSY_IO_BYTES:
        return True
    if any(waits_for_ranks(calls) for calls in frames):
        # threads of the library may spin while it waits
        return len({waits_for_ranks(calls) for calls in frames}) > 1
    if len({call_chain(calls) for calls in frames if calls}) > 1:
        return True
    return RankState.RUNNING in (first.rank_state, last.rank_state) and (
        last.page_faults - first.page_faults > BUSY_FAULTS
        or last.switches - first.switches > BUSY_SWITCHES
        or last.cpu_seconds - first.cpu_seconds < LEAST_CPU_SECONDS
    )


def _is_resting(samples: Sequence[RankSample], rank: int, sleeps: Sleeps) -> bool:
    """Return whether the rank, or a process that works for it, sleeps for a moment."""
    processes = [sample.ranks[rank] for sample in samples if rank in sample.ranks]
    workers = samples[-1].workers_of(rank)
    for pid in {process.pid for process in (*processes, *workers)}:
        counters = [s.counters[pid] for s in samples if pid in s.counters]
        if not counters or not sleeps.is_pause(pid, counters):
            continue
        end = counters[-1].sleep_ends
        if end is not None and end - samples[-1].at < SLEEP_SECONDS:
            return True
    return False


def _stack(sample: RankSample, pid: int) -> ProcessStacks | None:
    return next((process for process in sample.stacks if process.pid == pid), None)
