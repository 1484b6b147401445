"""Shapes of the HTTP API: requests are strict, answers are stable (docs/reference/schema/*.json).

Times are wall-clock seconds since 1970, durations seconds, sizes bytes; GPUs are numbers, a share
being a fraction. A client ignores fields that it does not know.
"""

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field

from corral.domain import job as jobs
from corral.domain.ids import NAME, JobId, QueueName
from corral.domain.observed_state import Progress as Beat
from corral.domain.requests import SetJob
from corral.domain.world import Event as Happened
from corral.wire.active_checks import (
    CheckAsked,
    CheckedNode,
    CheckResult,
    Checkup,
    CheckWaiting,
    results_of,
)
from corral.wire.cluster_answers import Cluster, Gpus, Head, OneHead, Separation, Status
from corral.wire.job_changes import ChangedJob, ChangeRefused, JobsChange, JobsChanged
from corral.wire.job_parts import (
    Answer,
    Attempt,
    Bottleneck,
    Checkpoint,
    Ending,
    Forecast,
    Form,
    Instead,
    Place,
    Progress,
    Receipt,
    Seat,
    Shape,
    Warned,
    Why,
)
from corral.wire.node_answers import (
    Node,
    NodeAilment,
    NodeDetail,
    NodeGpu,
    NodeGpus,
    Nodes,
)
from corral.wire.signals import To

__all__ = [
    "Answer",
    "Asked",
    "Attempt",
    "ChangeRefused",
    "ChangedJob",
    "CheckAsked",
    "CheckResult",
    "CheckWaiting",
    "CheckedNode",
    "Checkpoint",
    "Checkpoints",
    "Checkup",
    "Cluster",
    "Ending",
    "Error",
    "ErrorBody",
    "Event",
    "Events",
    "Forecast",
    "Form",
    "Gpus",
    "Head",
    "HeadDown",
    "Instead",
    "Job",
    "JobDetail",
    "JobSignal",
    "JobSubmit",
    "Jobs",
    "JobsChange",
    "JobsChanged",
    "Kept",
    "LogLines",
    "Node",
    "NodeAilment",
    "NodeDetail",
    "NodeGpu",
    "NodeGpus",
    "NodeLabels",
    "Nodes",
    "OneHead",
    "Place",
    "Plan",
    "PlannedJob",
    "Progress",
    "Receipt",
    "Seat",
    "Separation",
    "Secret",
    "SecretValue",
    "Secrets",
    "Shape",
    "Status",
    "Warned",
    "Why",
    "error_of",
    "results_of",
]


class Asked(BaseModel):
    """A request's body: nothing is taken for something else, nothing is left unread."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


class JobSubmit(Asked):
    """Specs as in docs/reference/schema/spec.json; `workdir` is the digest of a snapshot that is
    here.

    The same key again answers with the first jobs. `held`: they are suspended from the start, and
    begin after `resume`.
    """

    specs: Annotated[list[dict[str, Any]], Field(min_length=1, max_length=10_000)]
    key: Annotated[str, Field(min_length=1, max_length=200, pattern=r"^[!-~]+$")]
    held: bool = False


class JobChange(Asked):
    """Of a waiting job; null leaves what is. `name` of a job of an array is without its index."""

    name: Annotated[str | None, Field(pattern=f"^{NAME.pattern}$")] = None
    queue: Annotated[str | None, Field(pattern=f"^{NAME.pattern}$")] = None
    priority: Annotated[int | None, Field(ge=-10_000, le=10_000)] = None
    max_duration_seconds: Annotated[float | None, Field(gt=0, le=10 * 366 * 86_400)] = None

    def to_domain(self, job: JobId) -> SetJob:
        return SetJob(
            job=job,
            name=self.name,
            queue=None if self.queue is None else QueueName(self.queue),
            priority=self.priority,
            max_duration_seconds=self.max_duration_seconds,
        )


class JobSignal(Asked):
    """USR1, SIGUSR1 or 10. `to`: the ranks with all that they have started (of a batch script, its
    steps), the shell that each was started by alone (`batch`), or both (`all`). None: both of a
    batch script, else the ranks."""

    signal: Annotated[str, Field(min_length=1, max_length=20)]
    to: To | None = None


class SecretValue(Asked):
    """A secret's value. `for_everybody`: it serves the jobs of all users, not of its owner alone;
    null leaves that as it is."""

    value: Annotated[str, Field(min_length=1, max_length=65_536)]
    for_everybody: bool | None = None


class NodeLabels(Asked):
    """Labels and their values; null takes one away."""

    labels: Annotated[dict[str, str | None], Field(min_length=1, max_length=100)]


class HeadDown(Asked):
    jobs: Literal["leave", "stop"] = "leave"


class ErrorBody(Answer):
    """`code` never changes once released; `hint` is the next thing to do."""

    code: str
    message: str
    hint: str = ""


class Error(Answer):
    error: ErrorBody


class Job(Answer):
    """A job in a listing. `nodes` are those of its newest attempt, while it is on them, and
    `held_gpus` what it holds there; null while it is on none."""

    id: str
    name: str
    state: str
    reason: str
    reason_code: str
    owner: str
    queue: str
    priority: int
    shape: Shape
    nodes: list[str]
    attempt: int
    exit_code: int | None
    submitted_at: float
    since: float
    started_at: float | None
    ended_at: float | None
    infra_retries: int
    user_retries: int
    array_index: int | None
    array: str | None
    max_duration_seconds: float | None = None
    progress: Progress | None
    held_gpus: float | None = None
    ran_seconds: float | None = None  # of its attempts that are over
    running_since: float | None = None  # its newest attempt, while it runs

    @classmethod
    def of(
        cls,
        job: jobs.Job,
        *,
        reason: str,
        reason_code: str,
        nodes: Sequence[str],
        progress: Beat | None,
        **more: Any,
    ) -> Self:
        return cls(
            id=job.id,
            name=job.spec.name,
            state=job.state,
            reason=reason,
            reason_code=reason_code,
            owner=job.owner,
            queue=job.spec.queue,
            priority=job.spec.priority,
            shape=Shape.of(job.spec.nodes, job.spec.resources),
            nodes=list(nodes),
            attempt=job.attempt,
            exit_code=job.exit_code,
            submitted_at=job.submitted_at,
            since=job.since,
            started_at=job.started_at,
            ended_at=job.ended_at,
            infra_retries=job.infra_retries,
            user_retries=job.user_retries,
            array_index=job.spec.array_index,
            array=job.array,
            max_duration_seconds=job.spec.max_duration_seconds,
            progress=Progress.of(progress) if progress else None,
            ran_seconds=job.ran_seconds,
            **more,
        )

    @property
    def is_over(self) -> bool:
        return self.state in ("DONE", "FAILED", "CANCELLED")


class JobDetail(Job):
    """One job whole (`corral show`). `nodes` are those of its newest attempt, also afterwards."""

    run: str | None  # None, as workdir: it is another's, and not to be seen
    per: str
    workdir: str | None
    image: str | None = None
    bottleneck: Bottleneck | None = None
    begins_at: float | None  # not before; null: at once
    starts_by: float | None  # it ends when it has not run by then
    place: Place
    preemptible: bool
    warned: Warned | None = None
    whose: str = ""  # that it is another's, where a name was asked for
    pretend: bool = False  # its GPUs are pretend ones, and so are their readings
    origin: str = ""  # the save of another job that it starts from: j35@400
    next: str = ""  # how to start a new job from its newest save, once it is over
    forms: list[Form] = []  # all that would do, in the order in which they are tried
    attempts: list[Attempt]
    receipts: list[Receipt]
    checkpoints: list[Checkpoint]


class Jobs(Answer):
    jobs: list[Job]


class Event(Answer):
    """Something that happened. Numbers rise; they are the place to go on from."""

    number: int
    at: float
    kind: str
    text: str
    job: str | None
    node: str | None
    attempt: int | None

    @classmethod
    def of(cls, event: Happened) -> Self:
        return cls(**{name: getattr(event, name) for name in cls.model_fields})


class Events(Answer):
    events: list[Event]


class Checkpoints(Answer):
    checkpoints: list[Checkpoint]


class LogLines(Answer):
    """A piece of one rank's log, or at the end the state that the job ended in. `times`, where
    asked for: when each line reached the head; the first is of the piece's first byte."""

    rank: int | None = None
    attempt: int | None = None
    data: str = ""
    end: str | None = None
    times: list[float | None] = []


class PlannedJob(Answer):
    """Where a job would start now, or why it would wait. `environment` is that of its first rank,
    as far as it is known before the start; `forecast` that of the first job that would wait;
    `stops` whom it would stop. `forms`: all that would do, in the order in which they are tried;
    `shape` is the one that it would get, or the first. `kind` "ray": a program that runs once, with
    a log of each node's `ranks`. `python`: that of a job without one of its own. `origin`: the save
    of another job that it starts from, j35@400."""

    name: str
    starts_now: bool
    shape: Shape
    seats: list[Seat]
    ranks: int
    environment: dict[str, str]
    reason: str
    code: str
    suggestions: list[str]
    forecast: Forecast | None = None
    stops: list[str] = []
    forms: list[Form] = []
    queue: str = ""
    priority: int = 0
    max_duration_seconds: float | None = None
    place: Place | None = None
    preemptible: bool = False
    warned: Warned | None = None
    kind: str = "job"
    python: str = ""
    image: str | None = None
    origin: str = ""


class Plan(Answer):
    plan: list[PlannedJob]


class Secret(Answer):
    """A secret by name; its value is never answered."""

    name: str
    by: str
    at: float
    for_everybody: bool = False


class Secrets(Answer):
    secrets: list[Secret]


class Kept(Answer):
    """A snapshot that the head keeps."""

    sha256: str
    size_bytes: int


def error_of(code: str, message: str, hint: str = "") -> Mapping[str, Any]:
    """The body of every refusal."""
    return {"error": {"code": code, "message": message, "hint": hint}}
