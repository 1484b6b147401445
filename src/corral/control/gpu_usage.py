"""Sums of GPU usage from the sensor samples of allocated GPUs, collected in memory
between commits.

The sums are written once a minute. If a head dies, at most the readings of one minute
are lost. This minute is then reported as not measured, never as idle.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from math import isfinite
from typing import Final

from corral.control.step_times import Paces
from corral.domain.attempt import Allocation
from corral.domain.bounds import share
from corral.domain.ids import AttemptNumber, JobId, NodeId
from corral.domain.job import Job
from corral.domain.ledger import UsageAmounts, UsageRecord, by_day, day_of, summed
from corral.domain.observed_state import AttemptKey, Facts
from corral.domain.telemetry import GpuSample, NodeSample
from corral.domain.units import MILLIS_PER_GPU
from corral.domain.world import Changes, World
from corral.insight.attempt_spans import row
from corral.insight.open_accounts import gang_gpus
from corral.reconcile import Now

FLUSH_SECONDS: Final = 60.0
# that one sample speaks for: what is beyond was not measured
LONGEST_SECONDS: Final = 60.0
# of one GPU: what a sample says beyond it is no measurement
MOST_WATTS: Final = 10_000.0
IDLE_SHARE: Final = 0.05  # of a sample's time with a kernel; below, the GPU is idle
INDEX_SECONDS: Final = 1.0  # so old may the list be of what each node holds

# of a job, its attempt, a day, a type of GPU
RowKey = tuple[JobId, AttemptNumber, int, str]


@dataclass(slots=True)
class _Seen:
    """Last sample of one node: its time, and by GPU index the GPU's uuid and energy
    counter (joules)."""

    at: float
    joules: dict[int, tuple[str, float]] = field(default_factory=dict)


class GpuUsage:
    """Sums up in one head how much jobs use their GPUs. `idle` maps each attempt to the
    wall-clock time since which all of its GPUs are idle; None if one of them is in
    use."""

    def __init__(self) -> None:
        self.idle: dict[AttemptKey, float | None] = {}
        self.paces = Paces()
        self._sums: dict[RowKey, tuple[Job, UsageAmounts]] = {}
        self._seen: dict[NodeId, _Seen] = {}
        self._parts: dict[AttemptKey, dict[NodeId, float | None]] = {}  # idle since
        self._held: dict[NodeId, list[Allocation]] = {}
        self._indexed_at = float("-inf")
        self._flushed_at: float | None = None

    # -- what comes in ---------------------------------------------------------------------------

    def take(self, world: World, node: NodeId, sample: NodeSample, at: float) -> None:
        """Add the usage since the last sample of this node. `at`: time on the head's
        wall clock."""
        previous_sample = self._seen.get(node)
        joules = {
            gpu_sample.index: (gpu_sample.uuid, gpu_sample.energy_joules)
            for gpu_sample in sample.gpus
            if gpu_sample.energy_joules is not None
        }
        self._seen[node] = _Seen(at, joules)
        gpus = {gpu_sample.index: gpu_sample for gpu_sample in sample.gpus}
        length = min(
            LONGEST_SECONDS,
            sample.seconds if previous_sample is None else at - previous_sample.at,
        )
        for allocation in self._on(world, node, at):
            job = world.jobs.get(allocation.job)
            seconds = min(length, at - allocation.began)
            if job is None or seconds <= 0 or not allocation.seat.gpus:
                continue
            self._count(job, allocation, gpus, previous_sample, at - seconds, at)
            self._note_idle(world, allocation, gpus, at - seconds)

    def _on(self, world: World, node: NodeId, at: float) -> list[Allocation]:
        if not 0 <= at - self._indexed_at < INDEX_SECONDS:
            self._indexed_at, self._held = at, {}
            for allocation in world.allocations.values():
                self._held.setdefault(allocation.seat.node, []).append(allocation)
            self._drop_stale_state(world)
        return self._held.get(node, [])

    def _drop_stale_state(self, world: World) -> None:
        """Remove the idle state of GPUs that are no longer allocated."""
        live = {
            (allocation.job, allocation.attempt)
            for allocation in world.allocations.values()
        }
        for key in [key for key in self._parts if key not in live]:
            del self._parts[key]
            self.idle.pop(key, None)
        for removed_node in self._seen.keys() - world.nodes.keys():
            del self._seen[removed_node]

    def _count(
        self,
        job: Job,
        allocation: Allocation,
        gpus: dict[int, GpuSample],
        before: _Seen | None,
        since: float,
        until: float,
    ) -> None:
        seat = allocation.seat
        gpu_share = seat.gpu_millis / MILLIS_PER_GPU / len(seat.gpus)
        gpu_samples = [gpus[index] for index in seat.gpus if index in gpus]
        for gpu in gpu_samples:
            amounts = _of_sample(
                gpu, until - since, _consumed_joules(gpu, before, since, until)
            )
            for day, seconds in by_day(since, until) if amounts else ():
                day_amounts = amounts.times(gpu_share * seconds / (until - since))
                key = (job.id, allocation.attempt, day, gpu.type)
                _, sums = self._sums.get(key, (job, UsageAmounts()))
                self._sums[key] = (job, sums.plus(day_amounts))

    def _note_idle(
        self,
        world: World,
        allocation: Allocation,
        gpus: dict[int, GpuSample],
        since: float,
    ) -> None:
        """Update the idle time of an attempt. It is idle since the time at which the
        last of its nodes became idle. An attempt whose GPUs have no sensor readings
        does not count as idle."""
        key = (allocation.job, allocation.attempt)
        idle_by_node = self._parts.setdefault(key, {})
        seat, idle_since = allocation.seat, idle_by_node.get(allocation.seat.node)
        idle = all(index in gpus and _is_idle(gpus[index]) for index in seat.gpus)
        idle_by_node[seat.node] = (
            (since if idle_since is None else idle_since) if idle else None
        )
        attempt = world.attempts.get(allocation.job)
        is_complete = attempt is not None and len(idle_by_node) == sum(
            bool(attempt_seat.gpus) for attempt_seat in attempt.seats
        )
        since_all = [
            idle_start for idle_start in idle_by_node.values() if idle_start is not None
        ]
        self.idle[key] = (
            max(since_all)
            if is_complete and len(since_all) == len(idle_by_node)
            else None
        )

    # -- what goes out ---------------------------------------------------------------------------

    def waiting(self) -> Iterator[UsageRecord]:
        """Yield the usage sums that no commit has written yet."""
        sums = list(self._sums.items())  # the sums change during iteration
        return (
            row(job, attempt, day, kind, amounts)
            for (_, attempt, day, kind), (job, amounts) in sums
        )

    def news(self, world: World, facts: Facts, now: Now) -> Changes:
        """Return the events about new stragglers and, once a minute, the usage sums, to
        be committed."""
        events = tuple(self.paces.look(world, facts, now.serving, now.wall))
        self._count_slow_ranks(world, now.wall)
        return self.flushed(Changes(events=events), now.wall)

    def _count_slow_ranks(self, world: World, at: float) -> None:
        """Add the time for which attempts have waited for slow ranks."""
        for (id, number), seconds in self.paces.take_slow_seconds().items():
            job, attempt = world.jobs.get(id), world.attempts.get(id)
            if job is None or attempt is None or attempt.number != number:
                continue
            for kind, gpus in gang_gpus(job, attempt, world.nodes).items():
                key = (id, number, day_of(at), kind)
                _, sums = self._sums.get(key, (job, UsageAmounts()))
                slow = UsageAmounts(slow_gpu_seconds=seconds * gpus)
                self._sums[key] = (job, sums.plus(slow))

    def flushed(self, changes: Changes, at: float) -> Changes:
        """Return the changes with the usage sums added, once a minute.

        Each sum is sent once. If the commit fails, it is unknown whether the sum was
        written, so the sum is not sent again.
        """
        if self._flushed_at is None:
            self._flushed_at = at
        if 0 <= at - self._flushed_at < FLUSH_SECONDS:
            return changes
        self._flushed_at = at
        rows = tuple(self.waiting())
        self._sums = {}
        return (
            replace(changes, accounts=_merge_records((*changes.accounts, *rows)))
            if rows
            else changes
        )


def with_news(changes: Changes, news: Changes) -> Changes:
    """Return the changes with the events, accounts and counts of `news` added."""
    if not news:
        return changes
    accounts = (*changes.accounts, *news.accounts)
    return replace(
        changes,
        events=(*changes.events, *news.events),
        accounts=_merge_records(accounts) if news.accounts else accounts,
        gateway_counts=(*changes.gateway_counts, *news.gateway_counts),
        forgotten_processes=(*changes.forgotten_processes, *news.forgotten_processes),
    )


def _merge_records(rows: Iterable[UsageRecord]) -> tuple[UsageRecord, ...]:
    return tuple(summed(rows).values())


def _is_idle(gpu: GpuSample) -> bool:
    return (
        _has_reading(gpu)
        and gpu.utilisation is not None
        and gpu.utilisation < IDLE_SHARE
    )


def _has_reading(gpu: GpuSample) -> bool:
    return not gpu.silent and not gpu.lost


def _consumed_joules(
    gpu: GpuSample, before: _Seen | None, since: float, until: float
) -> float:
    """Return the energy in joules that the GPU consumed from `since` to `until`. It
    comes from the energy counter if that has only risen since `before`, else from the
    power."""
    uuid, last_joules = (
        ("", 0.0) if before is None else before.joules.get(gpu.index, ("", 0.0))
    )
    counter = gpu.energy_joules
    if (
        before is not None
        and counter is not None
        and uuid == gpu.uuid
        and counter >= last_joules
    ):
        return (counter - last_joules) * min(
            1.0, (until - since) / max(until - before.at, 1e-9)
        )
    return gpu.power_watts * (until - since) if gpu.power_watts is not None else 0.0


def _of_sample(gpu: GpuSample, seconds: float, joules: float) -> UsageAmounts:
    """Return the usage of a whole GPU during `seconds`. A simulated GPU (`pretend`) has
    no usage."""
    if not _has_reading(gpu) or gpu.pretend:
        return UsageAmounts()
    joules = min(max(0.0, joules), MOST_WATTS * seconds) if isfinite(joules) else 0.0
    if gpu.utilisation is None:
        return UsageAmounts(energy_joules=joules)
    return UsageAmounts(
        measured_gpu_seconds=seconds,
        used_gpu_seconds=share(gpu.utilisation) * seconds,
        idle_gpu_seconds=seconds if _is_idle(gpu) else 0.0,
        energy_joules=joules,
    )
