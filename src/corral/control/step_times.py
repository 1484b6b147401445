"""Step times of running jobs, from the progress reports of their training loops. The
module finds stragglers and the bottleneck of each job."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from statistics import median
from typing import Final

from corral.control.latest_samples import Sensed
from corral.domain.attempt import Attempt
from corral.domain.event_kind import EventKind
from corral.domain.ids import JobId, NodeId
from corral.domain.node import Liveness
from corral.domain.observed_state import AttemptKey, Facts, Pace, Progress
from corral.domain.telemetry import GpuSample
from corral.domain.units import share_text
from corral.domain.world import Event, World
from corral.insight.bottleneck import Bottleneck, StepTimes, bottleneck_of
from corral.insight.data_wait import DataWaitParts
from corral.insight.link_use import link_use
from corral.insight.straggler import (
    Look,
    Looks,
    StepSpan,
    Straggler,
    span_of,
    straggler_of,
)

LOOK_SECONDS: Final = 4.0
# in which programs are loaded: GPUs may stand idle meanwhile
STARTING_SECONDS: Final = 60.0
LOOKS: Final = 15  # kept looks: results cover the last minute


@dataclass(slots=True)
class _Loop:
    """Step times of one attempt's training loop.

    `looks` are the samples, and `changed_at` is the serving
    clock at the newest one. Each of `spans` lies between two consecutive samples; it is
    None if these hold too little data. The last field is the rank that was last
    reported as a straggler.
    """

    looks: Looks = field(default_factory=lambda: Looks(LOOKS))
    newest: Look = field(default_factory=dict)
    changed_at: float | None = None
    is_complete: bool = False  # it has made its last step
    spans: tuple[StepSpan | None, ...] = ()
    nodes: dict[int, NodeId] = field(default_factory=dict)  # of each rank
    straggler: Straggler | None = None
    reported_rank: int | None = None
    slow_seconds: float = 0.0  # spent waiting for it, and not taken yet
    data_parts: tuple[DataWaitParts, ...] = ()  # at the samples


class Paces:
    """Step times of the running jobs of one head. Only events about stragglers are
    recorded; the rest is kept in memory."""

    def __init__(self) -> None:
        self._loops: dict[AttemptKey, _Loop] = {}
        self._looked_at = float("-inf")

    def look(
        self, world: World, facts: Facts, serving: float, wall: float
    ) -> list[Event]:
        """Sample the progress of all training loops, at most once every few seconds of
        the head's serving clock. Return an event for each new straggler."""
        if serving - self._looked_at < LOOK_SECONDS:
            return []
        self._looked_at = serving
        for key in [key for key in self._loops if not _is_now(world, key)]:
            del self._loops[key]
        progress_by_attempt: dict[AttemptKey, dict[NodeId, Progress]] = {}
        for heard in facts.nodes.values():
            for attempt_report in heard.seen:
                if attempt_report.progress is not None and _is_now(
                    world, attempt_report.key
                ):
                    progress_by_attempt.setdefault(attempt_report.key, {})[
                        heard.node
                    ] = attempt_report.progress
        return [
            event
            for key, progress_by_node in progress_by_attempt.items()
            for event in self._update_loop(world, key, progress_by_node, wall)
        ]

    def _update_loop(
        self,
        world: World,
        key: AttemptKey,
        said: Mapping[NodeId, Progress],
        wall: float,
    ) -> Iterator[Event]:
        loop = self._loops.setdefault(key, _Loop())
        paces = {
            pace.rank: pace for progress in said.values() for pace in progress.ranks
        }
        loop.nodes = {
            pace.rank: id for id, progress in said.items() for pace in progress.ranks
        }
        if loop.looks and paces == loop.newest:
            return  # it makes no step, or its nodes are silent
        look = paces or {0: _pace_from_progress(next(iter(said.values())))}
        if loop.looks:
            loop.spans = (*loop.spans, span_of(loop.newest, look))[1 - LOOKS :]
        before = loop.newest
        loop.newest, loop.changed_at = look, self._looked_at
        loop.is_complete = any(progress.is_complete for progress in said.values())
        loop.data_parts = (*loop.data_parts, _data_parts(said.values()))[-LOOKS:]
        loop.looks.add(look, max(progress.save_seconds for progress in said.values()))
        spans = [span for span in loop.spans if span is not None]
        was_slow = loop.straggler is not None
        loop.straggler = straggler_of(spans, loop.looks.first, look) if spans else None
        if loop.straggler is not None:
            # the first time, it is so for all measurements by which it was seen
            since = before if was_slow else loop.looks.first
            loop.slow_seconds += _waited_seconds(loop.straggler, since, look)
        if loop.straggler is not None and loop.straggler.rank != loop.reported_rank:
            loop.reported_rank = loop.straggler.rank
            yield _straggler_event(
                world, key, loop.straggler, loop.nodes[loop.reported_rank], wall
            )

    def take_slow_seconds(self) -> dict[AttemptKey, float]:
        """Return for how long attempts have waited for slow ranks since the last call."""
        waited = {
            key: loop.slow_seconds
            for key, loop in self._loops.items()
            if loop.slow_seconds
        }
        for key in waited:
            self._loops[key].slow_seconds = 0.0
        return waited

    def bottleneck(
        self, world: World, sensed: Sensed, job: JobId, wall: float
    ) -> Bottleneck | None:
        """Return what limits the job's training speed now.

        Return None if nothing stands out or too little is known: samples of its GPUs
        are ignored just after its start.
        """
        attempt = world.attempts.get(job)
        if attempt is None:
            return None
        loop = self._loops.get((job, attempt.number)) or _Loop()
        ran_seconds = (
            wall - attempt.running_at if attempt.running_at is not None else 0.0
        )
        gpus = (
            _newest_gpu_samples(attempt, sensed)
            if ran_seconds >= STARTING_SECONDS
            else []
        )
        spent = _median_step_times(loop, gpus)
        if loop.changed_at is not None and _reports_steps(world, attempt, loop):
            since_seconds = self._looked_at - loop.changed_at
            spent = replace(spent, since_step_seconds=since_seconds)
        slow = loop.straggler
        node = loop.nodes[slow.rank] if slow is not None else ""
        return bottleneck_of(
            spent, slow, node, job=job, has_other_nodes=len(attempt.nodes) > 1
        )


def _is_now(world: World, key: AttemptKey) -> bool:
    attempt = world.attempts.get(key[0])
    return attempt is not None and attempt.number == key[1] and attempt.ended_at is None


def _reports_steps(world: World, attempt: Attempt, loop: _Loop) -> bool:
    """Return whether the loop has steps left, and its nodes can report them."""
    return not loop.is_complete and all(
        id in world.nodes and world.nodes[id].liveness is Liveness.ALIVE
        for id in attempt.nodes
    )


def _waited_seconds(slow: Straggler, before: Look, after: Look) -> float:
    """Return for how long the other ranks waited for the slow one between two
    measurements."""
    if slow.rank not in before or slow.rank not in after:
        return 0.0
    steps = after[slow.rank].step - before[slow.rank].step
    return max(0, steps) * max(0.0, slow.seconds - slow.others_seconds)


def _pace_from_progress(said: Progress) -> Pace:
    """Return the step times of a training loop that does not report its ranks
    separately, as those of rank 0."""
    return Pace(0, said.step, said.data_seconds, said.compute_seconds, 0.0)


def _data_parts(reports: Iterable[Progress]) -> DataWaitParts:
    """Return the waits for data so far, by their parts, summed over nodes."""
    progresses = tuple(reports)
    return DataWaitParts(
        seconds=sum(progress.data_seconds for progress in progresses),
        read_seconds=sum(progress.data_read_seconds for progress in progresses),
        decode_seconds=sum(progress.data_decode_seconds for progress in progresses),
        copy_seconds=sum(progress.data_copy_seconds for progress in progresses),
    )


def _straggler_event(
    world: World, key: AttemptKey, one: Straggler, node: NodeId, wall: float
) -> Event:
    job = world.jobs[key[0]]
    slower = f"{share_text(one.slower)} slower than the others"
    text = f"{job.spec.name}: rank {one.rank} on {node} is {slower}"
    return Event(
        at=wall,
        kind=EventKind.STRAGGLER,
        text=text,
        job=job.id,
        node=node,
        attempt=key[1],
    )


def _median_step_times(loop: _Loop, gpus: list[GpuSample]) -> StepTimes:
    """Return the times for data and computing over all kept samples of a loop, each as
    the median over the ranks. The GPU values come from the newest samples of the GPUs.
    """
    gpu_times = _gpu_step_times(gpus)
    if len(loop.looks) < 2:
        return gpu_times
    first_look, last_look = loop.looks.first, loop.newest
    progress_pairs = [
        (first_look[rank], last_look[rank])
        for rank in first_look.keys() & last_look.keys()
    ]
    if not progress_pairs:
        return gpu_times
    return replace(
        gpu_times,
        steps=max(
            end_progress.step - start_progress.step
            for start_progress, end_progress in progress_pairs
        ),
        data_seconds=median(
            end_progress.data_seconds - start_progress.data_seconds
            for start_progress, end_progress in progress_pairs
        ),
        compute_seconds=median(
            a.compute_seconds - b.compute_seconds for b, a in progress_pairs
        ),
        wait_seconds=median(
            end_progress.wait_seconds - start_progress.wait_seconds
            for start_progress, end_progress in progress_pairs
        ),
        save_seconds=loop.looks.save_seconds,
        data_parts=loop.data_parts[-1].since(loop.data_parts[0]),
    )


def _gpu_step_times(gpus: list[GpuSample]) -> StepTimes:
    """Return the medians over the GPUs. Pretend GPUs are left out, because no advice
    may be based on them."""
    gpus = [gpu for gpu in gpus if not gpu.pretend]
    busy = [gpu.utilisation for gpu in gpus if gpu.utilisation is not None]
    memory = [
        gpu.memory_used_bytes / gpu.memory_total_bytes
        for gpu in gpus
        if gpu.memory_used_bytes and gpu.memory_total_bytes
    ]
    return StepTimes(
        utilisation=median(busy) if busy else None,
        memory_share=median(memory) if memory else None,
        link=link_use(gpus),
    )


def _newest_gpu_samples(attempt: Attempt, sensed: Sensed) -> list[GpuSample]:
    """Return the newest sample of each GPU of the attempt."""
    samples = ((seat, sensed.newest.get(seat.node)) for seat in attempt.seats)
    return [
        gpu
        for seat, sample in samples
        if sample is not None
        for gpu in sample.gpus
        if gpu.index in seat.gpus
    ]
