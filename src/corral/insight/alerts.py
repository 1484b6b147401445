"""Alerts: conditions that still hold, and events that have passed."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final

from corral.domain.attempt import loss_text
from corral.domain.event_kind import KIND_OF_MOVE, EventKind
from corral.domain.hang import HangAct
from corral.domain.ids import NodeId, QueueName
from corral.domain.job import Job
from corral.domain.job_states import MOVES, JobState
from corral.domain.node import Liveness
from corral.domain.observed_state import Facts
from corral.domain.telemetry import NodeSample
from corral.domain.units import duration_text, share_text, size_text
from corral.domain.world import Event, World

FAILING: Final = frozenset(
    KIND_OF_MOVE[event] for (_, event), to in MOVES.items() if to == JobState.FAILED
)
STOPPING_SECONDS: Final = 600.0  # beyond its grace


class Severity(StrEnum):
    """Urgency of an alert, from the lowest to the highest."""

    INFO = "info"
    WARNING = "warning"
    CRITICAL = "critical"

    @property
    def rank(self) -> int:
        return list(Severity).index(self)


class AlertKind(StrEnum):
    """Subject of an alert; each kind has a rule in alerts.yaml."""

    JOB_FAILED = "job_failed"
    JOB_STUCK = "job_stuck"
    JOB_HUNG = "job_hung"
    LOSS_NAN = "loss_nan"  # of a training loop
    NODE_DOWN = "node_down"
    NODE_KEPT_BACK = "node_kept_back"  # cordoned by health
    QUEUE_STARVED = "queue_starved"
    BUDGET_LOW = "budget_low"
    DISK_FULL = "disk_full"


SEVERITY: Final[Mapping[AlertKind, Severity]] = {
    AlertKind.JOB_FAILED: Severity.WARNING,
    AlertKind.JOB_STUCK: Severity.WARNING,
    AlertKind.JOB_HUNG: Severity.WARNING,
    AlertKind.LOSS_NAN: Severity.WARNING,
    AlertKind.NODE_DOWN: Severity.CRITICAL,
    AlertKind.NODE_KEPT_BACK: Severity.WARNING,
    AlertKind.QUEUE_STARVED: Severity.WARNING,
    AlertKind.BUDGET_LOW: Severity.WARNING,
    AlertKind.DISK_FULL: Severity.CRITICAL,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Alert:
    """An alert for operators. `key` identifies it for as long as its condition holds.
    `next` is the command that shows more. `moment`: the alert is about an event, and
    not about a condition that still holds. `since`: when the condition or event began
    (wall clock)."""

    key: str
    kind: AlertKind
    text: str
    next: str
    since: float
    moment: bool = False

    @property
    def severity(self) -> Severity:
        return SEVERITY[self.kind]


@dataclass(frozen=True, slots=True, kw_only=True)
class AlertRules:
    """Thresholds of the alerts; None disables an alert."""

    job_failed: bool = True
    job_stuck_seconds: float | None = 1800.0
    job_hung: bool = True
    loss_nan: bool = True
    node_down_seconds: float | None = 60.0
    node_kept_back: bool = True
    queue_starved_seconds: float | None = 86_400.0
    budget_left_share: float | None = 0.1
    disk_free_share: float | None = 0.05


@dataclass(frozen=True, slots=True, kw_only=True)
class AlertSnapshot:
    """State of the cluster at one moment. `wall` is the time on the wall clock,
    `serving` on the head's own clock.

    `budgets`: the share of each queue's budget that is left. `disks`: by path of the
    head's directory, the free and total bytes of its disk.
    """

    world: World
    facts: Facts
    wall: float
    serving: float
    samples: Mapping[NodeId, NodeSample]
    budgets: Mapping[QueueName, float]
    disks: Mapping[str, tuple[int, int]]


def standing(look: AlertSnapshot, rules: AlertRules) -> list[Alert]:
    """Return all alerts whose condition holds now."""
    return [
        *_stuck_job_alerts(look, rules.job_stuck_seconds),
        *(_hung_job_alerts(look) if rules.job_hung else ()),
        *(_nan_loss_alerts(look) if rules.loss_nan else ()),
        *_node_alerts(look, rules),
        *_starved_queue_alerts(look, rules.queue_starved_seconds),
        *_low_budget_alerts(look, rules.budget_left_share),
        *_full_disk_alerts(look, rules.disk_free_share),
    ]


def with_beginnings(alerts: Iterable[Alert], known: Mapping[str, float]) -> list[Alert]:
    """Return the alerts with the time at which each began. `known` has these times for
    the alerts of the previous check, by key."""
    return [
        replace(alert, since=min(alert.since, known.get(alert.key, alert.since)))
        for alert in alerts
    ]


def happened(event: Event, job: Job | None, rules: AlertRules) -> Alert | None:
    """Return the alert about what an event says of a job; None if there is none."""
    alert = failed(event, job) if rules.job_failed else None
    return alert or (_restarted(event, job) if rules.job_hung else None)


def _restarted(event: Event, job: Job | None) -> Alert | None:
    """Return the alert that a hung attempt of the job was ended. A hang that lasts has
    an alert of its own."""
    if job is None or event.kind is not EventKind.HUNG:
        return None
    if job.spec.hang_rule.act is not HangAct.RESTART:
        return None
    return Alert(
        key=f"job_hung:{job.id}:{event.attempt}",
        kind=AlertKind.JOB_HUNG,
        text=f"{job.id} of {job.owner}: {event.text}; the attempt was ended",
        next=f"corral why {job.id}",
        since=event.at,
        moment=True,
    )


def failed(event: Event, job: Job | None) -> Alert | None:
    """Return the alert that the job has failed; None if the event does not mean that."""
    if job is None or event.kind not in FAILING or job.state != JobState.FAILED:
        return None
    return Alert(
        key=f"job_failed:{job.id}",
        kind=AlertKind.JOB_FAILED,
        text=f"{job.spec.name} ({job.id}) of {job.owner} has failed: {job.reason}",
        next=f"corral why {job.id}",
        since=event.at,
        moment=True,
    )


def _stuck_job_alerts(
    look: AlertSnapshot, after_seconds: float | None
) -> Iterator[Alert]:
    """Yield alerts for running jobs whose training loop has made no step for
    `after_seconds`, and for jobs that take too long to start or to stop."""
    if after_seconds is None:
        return
    for job in look.world.in_state(JobState.RUNNING).values():
        stepped = look.facts.stepped.get((job.id, job.attempt))
        quiet = 0.0 if stepped is None else look.serving - stepped
        if quiet >= after_seconds:
            yield _job_alert(
                job,
                f"has made no training step for {duration_text(quiet)}",
                look.wall - quiet,
            )
    for state, bound in (
        (JobState.STARTING, after_seconds),
        (JobState.STOPPING, STOPPING_SECONDS),
    ):
        for job in look.world.in_state(state).values():
            grace = job.spec.grace_seconds if state == JobState.STOPPING else 0.0
            long = look.wall - job.since
            if long >= bound + grace:
                yield _job_alert(
                    job, f"is {state} for {duration_text(long)}", job.since
                )


def _hung_job_alerts(look: AlertSnapshot) -> Iterator[Alert]:
    """Yield alerts for jobs that hang and are not restarted for it."""
    for job in look.world.in_state(JobState.RUNNING).values():
        attempt = look.world.attempts.get(job.id)
        if attempt is not None and attempt.hang is not None:
            hang_text = attempt.hang.text(whole=False)
            yield Alert(
                key=f"job_hung:{job.id}:{job.attempt}",
                kind=AlertKind.JOB_HUNG,
                text=f"{job.spec.name} ({job.id}) of {job.owner} hangs: {hang_text}",
                next=f"corral why {job.id}",
                since=attempt.hang.at,
            )


def _nan_loss_alerts(look: AlertSnapshot) -> Iterator[Alert]:
    """Yield alerts for jobs whose training loop computes a loss that is not a number."""
    for job in look.world.in_state(JobState.RUNNING).values():
        attempt = look.world.attempts.get(job.id)
        if attempt is not None and attempt.nan_step is not None:
            yield Alert(
                key=f"loss_nan:{job.id}:{job.attempt}",
                kind=AlertKind.LOSS_NAN,
                text=f"{job.spec.name} ({job.id}) of {job.owner}: {loss_text(attempt.nan_step)}",
                next=f"corral why {job.id}",
                since=attempt.nan_at if attempt.nan_at is not None else look.wall,
            )


def _job_alert(job: Job, what: str, since: float) -> Alert:
    return Alert(
        key=f"job_stuck:{job.id}:{job.attempt}",
        kind=AlertKind.JOB_STUCK,
        text=f"{job.spec.name} ({job.id}) of {job.owner} {what}",
        next=f"corral show {job.id}",
        since=since,
    )


def _node_alerts(look: AlertSnapshot, rules: AlertRules) -> Iterator[Alert]:
    for node in look.world.nodes.values():
        bound = rules.node_down_seconds
        down = node.liveness != Liveness.ALIVE and not node.draining
        if bound is not None and down and look.wall - node.since >= bound:
            yield Alert(
                key=f"node_down:{node.id}",
                kind=AlertKind.NODE_DOWN,
                text=f"node {node.id} is {node.liveness}: {node.why}",
                next=f"corral node show {node.id}",
                since=node.since,
            )
        if rules.node_kept_back and node.cordoned and node.cordoned_by:
            yield Alert(
                key=f"node_kept_back:{node.id}",
                kind=AlertKind.NODE_KEPT_BACK,
                text=f"node {node.id} gets no new jobs: it was cordoned for a fault",
                next=f"corral node show {node.id}",
                since=node.since,
            )


def _starved_queue_alerts(
    look: AlertSnapshot, after_seconds: float | None
) -> Iterator[Alert]:
    if after_seconds is None:
        return
    oldest: dict[QueueName, Job] = {}
    for job in look.world.in_state(JobState.QUEUED).values():
        oldest_job = oldest.get(job.spec.queue)
        if oldest_job is None or job.since < oldest_job.since:
            oldest[job.spec.queue] = job
    for queue, job in oldest.items():
        waited = look.wall - job.since
        job_label = f"{job.spec.name} ({job.id}) of queue {queue}"
        if waited >= after_seconds:
            yield Alert(
                key=f"queue_starved:{queue}",
                kind=AlertKind.QUEUE_STARVED,
                text=f"{job_label} has waited {duration_text(waited)}",
                next=f"corral why {job.id}",
                since=job.since + after_seconds,
            )


def _low_budget_alerts(
    look: AlertSnapshot, least_share: float | None
) -> Iterator[Alert]:
    for queue, budget_left in look.budgets.items():
        if least_share is not None and budget_left <= least_share:
            yield Alert(
                key=f"budget_low:{queue}",
                kind=AlertKind.BUDGET_LOW,
                text=f"only {share_text(budget_left)} of the budget of queue {queue} is left",
                next=f"corral queue show {queue}",
                since=look.wall,
            )


def _full_disk_alerts(
    look: AlertSnapshot, least_share: float | None
) -> Iterator[Alert]:
    if least_share is None:
        return
    for path, (free_bytes, total) in look.disks.items():
        if free_bytes < least_share * total:
            yield _build_disk_alert(
                "the head", path, free_bytes, total, "corral status", look.wall
            )
    for node, sample in look.samples.items():
        for disk in sample.disks:
            if not disk.silent and disk.free_bytes < least_share * disk.total_bytes:
                show = f"corral node show {node}"
                free_bytes, total = disk.free_bytes, disk.total_bytes
                yield _build_disk_alert(
                    f"node {node}", disk.path, free_bytes, total, show, look.wall
                )


def _build_disk_alert(
    whose: str, path: str, free: int, total: int, next: str, at: float
) -> Alert:
    return Alert(
        key=f"disk_full:{whose}:{path}",
        kind=AlertKind.DISK_FULL,
        text=f"the disk of {path} on {whose} is almost full: {size_text(free)} of "
        f"{size_text(total)} are free",
        next=next,
        since=at,
    )
