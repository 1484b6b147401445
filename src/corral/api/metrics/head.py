"""Metrics of the head: jobs, queues, waits, decisions, nodes, checkpoints and goodput."""

from collections import Counter
from collections.abc import Iterator
from typing import Final

from corral.api import views
from corral.api.metrics.families import MetricFamily, counter, gauge, histogram, info
from corral.api.metrics.goodput import goodput, gpu_seconds
from corral.api.queues import QueueSnapshot
from corral.control import Control
from corral.control.counters import HeadCounters
from corral.domain.job_states import JobState
from corral.domain.world import World
from corral.insight.reports import UsageReport

QUEUES: Final = (  # a field of wire.queue_answers.QueueRow each
    ("own", "own_gpus", "GPUs that the queue owns."),
    ("used", "used_gpus", "GPUs that jobs of the queue hold."),
    ("borrowed", "borrowed_gpus", "Held GPUs that the queue borrows from others."),
    ("owes", "owed_gpus", "GPUs that the queue recently held beyond its due."),
    (
        "share",
        "share_ratio",
        "The queue's share of the cluster, divided by its weight.",
    ),
)


class HeadSeries:
    """Metrics of one head at the moment of a scrape. `disk` holds the (free, total)
    bytes of the disk of its directory. `goodput` is a report of today and yesterday by
    queue, or None."""

    def __init__(
        self,
        control: Control,
        *,
        version: str,
        disk: tuple[int, int] | None,
        goodput: UsageReport | None,
    ) -> None:
        self._control = control
        self._goodput = goodput
        self._version = version
        self._disk = disk

    def collect(self) -> Iterator[MetricFamily]:
        control = self._control
        world = control.world
        about = {
            "version": self._version,
            "cluster": str(world.cluster),
            "engine": control.engine.name,
        }
        yield info("corral", "Version, cluster and engine of the head.", about)
        yield gauge(
            "corral_term",
            "Number of leaders of this cluster so far.",
            [((), world.term)],
        )
        yield from _job_families(world, control.now().wall)
        yield from _queue_families(QueueSnapshot(control))
        yield from _node_state_families(world)
        yield from _counter_families(control)
        yield from gpu_seconds(control.counts.amounts)
        if self._goodput is not None:
            yield from goodput(self._goodput)
        yield gauge(
            "corral_warnings",
            "Open warnings of the cluster, which corral status lists.",
            [((), len(control.warnings()))],
        )
        if self._disk is not None:
            free_bytes, total = self._disk
            yield gauge(
                "corral_head_disk_free_bytes",
                "Free bytes of the disk of the cluster's directory.",
                [((), free_bytes)],
            )
            yield gauge(
                "corral_head_disk_bytes",
                "Size of the disk of the cluster's directory.",
                [((), total)],
            )


def _job_families(world: World, now: float) -> Iterator[MetricFamily]:
    states: Counter[tuple[str, ...]] = Counter(
        (str(job.spec.queue), job.state.value) for job in world.jobs.values()
    )
    for queue in world.queues.by_name:
        for state in (JobState.QUEUED, JobState.RUNNING):
            # a series that is not there cannot be 0
            states[str(queue), state.value] += 0
    yield gauge(
        "corral_jobs",
        "Unfinished jobs.",
        states.items(),
        labels=("queue", "state"),
    )
    oldest: dict[tuple[str, ...], float] = {}
    for job in world.in_state(JobState.QUEUED).values():
        key = (str(job.spec.queue),)
        oldest[key] = max(oldest.get(key, 0.0), now - job.since)
    yield gauge(
        "corral_queue_oldest_wait_seconds",
        "Wait so far of the queued job that has waited longest.",
        oldest.items(),
        labels=("queue",),
    )


def _queue_families(look: QueueSnapshot) -> Iterator[MetricFamily]:
    rows = look.rows()
    for field, name, help in QUEUES:
        values = [((row.name,), float(getattr(row, field))) for row in rows]
        yield gauge(f"corral_queue_{name}", help, values, labels=("queue",))
    hours = [((row.name,), row.used_gpu_hours * 3600) for row in rows]
    yield counter(
        "corral_queue_gpu_seconds",
        "GPU-seconds that jobs of the queue held and have released.",
        hours,
        labels=("queue",),
    )
    budgets = [(row.name, row.budget) for row in rows if row.budget is not None]
    budget_left = [
        ((name, budget_row.unit), budget_row.left) for name, budget_row in budgets
    ]
    yield gauge(
        "corral_queue_budget_left",
        "Amount left of the queue's budget, in the unit of the label.",
        budget_left,
        labels=("queue", "unit"),
    )
    amount = [
        ((name, budget_row.unit), budget_row.amount) for name, budget_row in budgets
    ]
    yield gauge(
        "corral_queue_budget",
        "Budget of the queue, in the unit of the label.",
        amount,
        labels=("queue", "unit"),
    )
    run_out_times = [
        ((name,), budget_row.runs_out_at)
        for name, budget_row in budgets
        if budget_row.runs_out_at is not None
    ]
    yield gauge(
        "corral_queue_budget_runs_out_timestamp_seconds",
        "Time at which the budget is spent if the held GPUs stay held.",
        run_out_times,
        labels=("queue",),
    )


def _node_state_families(world: World) -> Iterator[MetricFamily]:
    node_counts: Counter[tuple[str, ...]] = Counter()
    for node in world.nodes.values():
        work = "drained" if node.draining else "cordoned" if node.cordoned else "open"
        node_counts[node.liveness.value, work] += 1
    yield gauge(
        "corral_nodes",
        "Nodes, by liveness and by whether they take work.",
        node_counts.items(),
        labels=("liveness", "work"),
    )
    up = [
        ((str(id),), node.liveness.value == "alive")
        for id, node in sorted(world.nodes.items())
    ]
    yield gauge(
        "corral_node_up", "Whether heartbeats of the node arrive.", up, labels=("node",)
    )
    gpus = views.gpus(world)
    rows = [
        ((name,), float(getattr(gpus, name)))
        for name in ("total", "free", "used", "away")
    ]
    yield gauge(
        "corral_gpus",
        "GPUs: total, free, used, and away (on nodes that take no work).",
        rows,
        ("kind",),
    )


def _counter_families(control: Control) -> Iterator[MetricFamily]:
    counts = control.counts
    by_queue = ("queue",)
    submitted = [((str(queue),), n) for queue, n in counts.submitted.items()]
    yield counter(
        "corral_jobs_submitted", "Jobs that were submitted.", submitted, by_queue
    )
    ended_counts = [
        ((str(queue), state.value), n) for (queue, state), n in counts.ended.items()
    ]
    yield counter(
        "corral_jobs_ended", "Ended jobs, by state.", ended_counts, ("queue", "state")
    )
    starts = [((str(queue),), n) for queue, n in counts.starts.items()]
    yield counter(
        "corral_attempts_started", "Attempts that were placed.", starts, by_queue
    )
    failures = [((cause.value,), n) for cause, n in counts.failures.items()]
    yield counter(
        "corral_attempts_failed", "Failed attempts, by cause.", failures, ("cause",)
    )
    kinds = [((kind,), n) for kind, n in counts.interruptions.items()]
    yield counter(
        "corral_interruptions",
        "Interruptions of jobs, by the kind of the receipt.",
        kinds,
        ("kind",),
    )
    lost_seconds = [((kind,), n) for kind, n in counts.lost_gpu_seconds.items()]
    yield counter(
        "corral_lost_gpu_seconds",
        "GPU-seconds of work lost by interruptions.",
        lost_seconds,
        ("kind",),
    )
    yield from _signal_counts(control)
    yield from _checkpoint_counts(counts)
    yield counter(
        "corral_commits", "Decisions stored by the head.", [((), counts.commits)]
    )
    waits = [
        ((str(queue),), histogram_counts.cumulative(), histogram_counts.total)
        for queue, histogram_counts in counts.waits.items()
    ]
    yield histogram(
        "corral_wait_seconds",
        "Time from the submission of a job to its first placement.",
        waits,
        by_queue,
    )
    yield histogram(
        "corral_tick_seconds",
        "Time from an observation to the decision that is stored and sent.",
        [((), counts.ticks.cumulative(), counts.ticks.total)],
    )


def _signal_counts(control: Control) -> Iterator[MetricFamily]:
    signals = [((kind,), n) for kind, n in control.counts.signals.items()]
    yield counter(
        "corral_signals", "Signals of nodes about their faults.", signals, ("kind",)
    )
    kinds = [((kind,), n) for kind, n in control.dropped.counts.items()]
    yield counter(
        "corral_dropped_data",
        "Messages of ranks and nodes that exceeded a limit and were dropped.",
        kinds,
        ("kind",),
    )


def _checkpoint_counts(counts: HeadCounters) -> Iterator[MetricFamily]:
    yield counter("corral_checkpoints", "Complete saves of jobs.", [((), counts.saves)])
    yield counter(
        "corral_checkpoint_seconds",
        "Duration of a save, from the first byte to fsync.",
        [((), counts.save_seconds)],
    )
    yield counter(
        "corral_checkpoint_stall_seconds",
        "Time that training loops lost by saves.",
        [((), counts.save_stall_seconds)],
    )
    yield counter(
        "corral_checkpoint_bytes", "Bytes of saves.", [((), counts.saved_bytes)]
    )
