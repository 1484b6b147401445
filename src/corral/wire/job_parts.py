"""Parts of the API's answer about a job: seats, shapes, progress, attempts,
checkpoints, receipts."""

from collections.abc import Iterable, Sequence
from typing import Any, Self

from pydantic import BaseModel, ConfigDict

from corral.domain import attempt as attempts
from corral.domain import placement_constraints as places
from corral.domain import resources as needs
from corral.domain import run_history as forecasts
from corral.domain.failure_class import FAILURES, next_step
from corral.domain.hang_record import HangRecord, place_text
from corral.domain.job import CheckpointRule, JobSpec
from corral.domain.keep_rule import save_key
from corral.domain.kept_checkpoints import keep_reasons, rule_of
from corral.domain.observed_state import Progress as TrainingProgress
from corral.domain.receipt import Receipt
from corral.domain.time_point import EndWarning
from corral.domain.units import MILLIS_PER_CPU, MILLIS_PER_GPU
from corral.insight.bottleneck import Bottleneck as Found
from corral.wire.signals import name_of


class ForecastView(BaseModel):
    model_config = ConfigDict(extra="ignore", frozen=True)


class SeatView(ForecastView):
    """Resources of an attempt on one node: GPU indices, number of GPUs, cores, memory,
    and the slices of a partitioned GPU."""

    node: str
    gpus: list[int]
    gpu_count: float
    cpus: float
    memory_bytes: int
    slices: list[str] = []
    exclusive: bool = False

    @classmethod
    def of(cls, seat: attempts.Seat) -> Self:
        return cls(
            node=seat.node,
            gpus=list(seat.gpus),
            gpu_count=seat.gpu_millis / MILLIS_PER_GPU,
            cpus=seat.cpu_millis / MILLIS_PER_CPU,
            memory_bytes=seat.memory_bytes,
            slices=list(seat.slices),
            exclusive=seat.exclusive,
        )


class ShapeView(ForecastView):
    """A number of nodes, and the resources of each. `gpu_type` null: any type."""

    nodes: int
    gpus_per_node: float
    gpu_type: str | None
    cpus_per_node: float
    memory_bytes_per_node: int

    @classmethod
    def of(cls, count: int, one: needs.Resources) -> Self:
        return cls(
            nodes=count,
            gpus_per_node=one.gpu_millis / MILLIS_PER_GPU,
            gpu_type=one.gpu_type,
            cpus_per_node=one.cpu_millis / MILLIS_PER_CPU,
            memory_bytes_per_node=one.memory_bytes,
        )


class Form(ShapeView):
    """One acceptable form of a job: its shape on `nodes` nodes, or on fewer, down to
    `least_nodes`."""

    least_nodes: int

    @classmethod
    def all_of(cls, shapes: Iterable[needs.Shape]) -> list[Self]:
        """Return the acceptable forms of a job, in the order in which they are tried."""
        return [
            cls(
                **ShapeView.of(form[0].nodes, form[0].resources).model_dump(),
                least_nodes=form[-1].nodes,
            )
            for form in needs.forms_of(list(shapes))
        ]


class PlaceView(ForecastView):
    """Placement rules beyond the resources. `constraints`: for example zone=a or
    node!=n3,n4; `topology`: prefer, spread or for example require:rack."""

    constraints: list[str]
    topology: str
    exclusive: bool
    apart_from: list[str]

    @classmethod
    def of(cls, rule: places.PlaceRule) -> Self:
        mode, within = rule.topology.mode, rule.topology.within
        return cls(
            constraints=[str(constraint) for constraint in rule.constraints],
            topology=f"{mode}:{within}" if mode == places.Mode.REQUIRE else mode,
            exclusive=rule.exclusive,
            apart_from=list(rule.apart_from),
        )


class Warned(ForecastView):
    """Warning of a job before its time limit, if the job requests one: the name of a
    signal, and the seconds before the limit."""

    signal: str | None
    before_seconds: float

    @classmethod
    def of(cls, spec: JobSpec) -> Self | None:
        limit = spec.max_duration_seconds
        if limit is None or spec.warn == EndWarning():
            return None
        number = spec.warn.signal
        name = None if number is None else name_of(number)
        return cls(signal=name, before_seconds=spec.warn.before(limit))


class ProgressView(ForecastView):
    """The newest progress report of the training loop."""

    step: int
    first_step: int
    until: int | None
    loss: float | None
    samples_per_second: float | None
    data_seconds: float
    compute_seconds: float
    save_seconds: float
    at: float
    left_seconds: float | None = None  # until its last step, by its rate of steps
    nan_since: int | None = None  # the step since which its loss is not a finite number
    # of the newest save in the memory of the nodes
    memory_step: int | None = None

    @classmethod
    def of(cls, progress: TrainingProgress) -> Self:
        return cls(**{name: getattr(progress, name) for name in cls.model_fields})


class BottleneckView(ForecastView):
    """Bottleneck of a running job. `bound`: stalled, data, saves, communication,
    straggler, small-batch, compute or idle. `text`: the measurement that shows the bottleneck;
    `advice`: what to try."""

    bound: str
    text: str
    advice: str

    @classmethod
    def of(cls, one: Found | None) -> Self | None:
        return (
            None
            if one is None
            else cls(bound=one.bound, text=one.text, advice=one.advice)
        )


class HangView(ForecastView):
    """Hang of an attempt: its ranks made no step for `stalled_seconds`. `text`: a
    sentence for people. `rank`: the stuck rank on `node`; null: not sure which. `act`:
    restart or alert. `frame` is where that rank stood, and `places` has a line for each
    place where ranks stood; both only for users who may read the log."""

    at: float
    stalled_seconds: float
    step: int
    phase: str
    act: str
    text: str
    rank: int | None = None
    node: str | None = None
    frame: str = ""
    places: list[str] = []

    @classmethod
    def of(cls, record: HangRecord | None, *, whole: bool) -> Self | None:
        if record is None:
            return None
        return cls(
            at=record.at,
            stalled_seconds=record.stalled_seconds,
            step=record.step,
            phase=record.phase,
            act=record.act,
            text=record.text(whole=whole),
            rank=record.rank,
            node=record.node,
            frame=record.frame if whole else "",
            places=[place_text(place) for place in record.places if whole],
        )


class AttemptView(ForecastView):
    """One attempt of a job. `cause`: the retry budget to which its failure was charged:
    none, user, infra or request. `failure`: the class of the failure; `next`: what to
    do about it; `quote`: the line of the log that shows the failure, for users who may
    read the log. `failed_at`: file and line of the program that raised the error."""

    number: int
    nodes: list[str]
    seats: list[SeatView]
    master_port: int
    placed_at: float
    running_at: float | None
    ended_at: float | None
    cause: str
    culprit: str
    evidence: str
    failure: str | None = None
    next: str = ""
    quote: str = ""
    failed_at: str = ""
    exit_code: int | None
    resume_step: int | None
    last_step: int | None
    idle_since: float | None = None  # none of its GPUs runs anything
    nan_step: int | None = None  # since then its loss is not a finite number
    images: list[str] = []  # digests of the images that its ranks ran in
    hang: HangView | None = None  # the hang that ended it, or that lasts
    in_place: bool = False  # it began on the seats of the attempt before it

    @classmethod
    def of(cls, one: attempts.Attempt, *, whole: bool = True) -> Self:
        own_fields: dict[str, Any] = {
            "nodes": list(one.nodes),
            "next": "",
            "images": list(one.images),
            "hang": HangView.of(one.hang, whole=whole),
        }
        own_fields |= {"seats": [SeatView.of(seat) for seat in one.seats]}
        own_fields |= {"quote": one.quote if whole else ""}
        own_fields |= {"failed_at": one.failed_at if whole else ""}
        if one.failure is not None:
            next = next_step(one.failure, one.next_step, own_fields["failed_at"])
            own_fields["next"] = next.replace("{job}", one.job)
        rest = {
            name: getattr(one, name)
            for name in cls.model_fields
            if name not in own_fields
        }
        return cls.model_validate(own_fields | rest)


class CheckpointView(ForecastView):
    """A recorded save. `quarantined`: why the save failed verification; "" if it did
    not. `pruned`: the save is replaced by newer ones, and its files are removed.

    `kept`: why it stays on disk (last, every, best, pinned). `retired`: a user removed it
    (removed), or the job went back to an older save (passed-over); "" for a save that can
    be used. `metrics`: newest values that the job had logged. `verified_at`: when an
    attempt last verified it to resume from it; null if none has.
    """

    attempt: int
    step: int
    path: str
    manifest_sha256: str
    size_bytes: int
    seconds: float
    stall_seconds: float
    at: float
    quarantined: str
    pruned: bool = False
    kept: list[str] = []
    pinned: bool = False
    retired: str = ""
    metrics: dict[str, float] = {}
    verified_at: float | None = None

    @classmethod
    def all_of(
        cls, saves: Sequence[attempts.Save], rule: CheckpointRule | None
    ) -> list[Self]:
        """Return the saves of one job in their given order."""
        kept_reasons = keep_reasons(saves, rule_of(rule))
        names = cls.model_fields.keys() - {"pruned", "kept", "retired", "metrics"}
        return [
            cls(
                **{name: getattr(save, name) for name in names},
                pruned=save.is_usable and save_key(save) not in kept_reasons,
                kept=[str(reason) for reason in kept_reasons.get(save_key(save), ())]
                if save.is_usable
                else [],
                retired=str(save.retired or ""),
                metrics=dict(save.metrics),
            )
            for save in saves
        ]


class ReceiptView(ForecastView):
    """Cost of one interruption of a job. `others`: for a preemption, the jobs that it
    preempted or that preempted it; `text`: a summary on one line."""

    attempt: int
    kind: str
    cause: str
    culprit: str
    evidence: str
    steps_lost: int | None
    gpu_seconds_lost: float
    seen_at: float
    resumed_from_step: int | None
    seconds_lost: float | None
    others: list[str]
    text: str

    @classmethod
    def of(cls, receipt: Receipt) -> Self:
        fields = {name: getattr(receipt, name) for name in cls.model_fields}
        return cls(**{**fields, "others": list(receipt.others)})


class TimeSpanView(ForecastView):
    """An interval in seconds from now. `high_seconds` null: later than the forecast
    looks ahead. `text`: the interval for people, for example: in 12 to 40 min."""

    low_seconds: float
    high_seconds: float | None
    text: str

    @classmethod
    def of(cls, span: forecasts.TimeSpan) -> Self:
        return cls(
            low_seconds=span.low_seconds, high_seconds=span.high_seconds, text=str(span)
        )


class ExpectedEndView(ForecastView):
    """Expected end of a running job.

    `ends`: the interval predicted from its rate of steps (`step` of `until`), else from
    `kin` similar jobs. It should be right `percent` times out of 100 (null: there are
    too few similar jobs). `ends_by`: the end by its time limit (null: no limit). `text`
    is "" if the end is unknown.
    """

    ends: TimeSpanView | None
    percent: int | None
    kin: int
    ends_by: float | None
    text: str
    step: int | None = None
    until: int | None = None

    @classmethod
    def of(cls, found: forecasts.ExpectedEnd) -> Self:
        return cls(
            ends=None if found.ends is None else TimeSpanView.of(found.ends),
            percent=found.percent,
            kin=found.kin,
            ends_by=found.ends_by,
            text=str(found),
            step=found.step,
            until=found.until,
        )


class ChangeSuggestionView(ForecastView):
    """A change with which the job would start sooner, for example 1 node instead of 2.

    `stops`: the jobs that it would probably stop; "" for none.
    """

    change: str
    starts: TimeSpanView
    stops: str = ""


class StartForecastView(ForecastView):
    """Predicted start and end of a waiting job.

    Each prediction is an interval that should be right `percent` times out of 100.
    `runs`: number of simulations of the current state. `known_percent`: percentage of
    simulated jobs whose run time is predicted from similar jobs; for the others, their
    limit or a guess is used. `told`: number of past forecasts with a recorded outcome.
    `held_percent`: percentage of those outcomes that lay in their interval.
    `gives_up_at`: time at which the job is given up if it has not started; null:
    probably after the predicted interval. `is_too_late`: the job will probably be given
    up before it starts.
    """

    starts: TimeSpanView
    ends: TimeSpanView
    percent: int
    runs: int
    known_percent: float
    told: int
    held_percent: float | None
    text: str
    instead: list[ChangeSuggestionView]
    gives_up_at: float | None = None
    is_too_late: bool = False

    @classmethod
    def of(cls, found: forecasts.StartForecast) -> Self:
        return cls(
            starts=TimeSpanView.of(found.starts),
            ends=TimeSpanView.of(found.ends),
            percent=forecasts.PERCENT,
            runs=found.runs,
            known_percent=100 * found.known,
            told=found.told,
            held_percent=found.held,
            text=str(found),
            instead=[
                ChangeSuggestionView(
                    change=change_suggestion.change,
                    starts=TimeSpanView.of(change_suggestion.starts),
                    stops=change_suggestion.stops,
                )
                for change_suggestion in found.instead
            ],
            gives_up_at=found.starts_by if found.may_be_given_up else None,
            is_too_late=found.is_too_late,
        )


class Failed(ForecastView):
    """Failure of an attempt: the class, the cause, the evidence, and what to do next.
    `quote`: the line of its log, and `failed_at`: file and line of the program that
    raised the error; both only for users who may read the log."""

    attempt: int
    failure: str
    text: str
    culprit: str
    evidence: str
    quote: str
    failed_at: str = ""
    next: str

    @classmethod
    def of(cls, one: attempts.Attempt, *, whole: bool) -> "Failed | None":
        if one.failure is None or one.ended_at is None:
            return None
        meaning = FAILURES[one.failure]
        return cls(
            attempt=one.number,
            failure=one.failure.value,
            text=meaning.text,
            culprit=one.culprit,
            evidence=one.evidence,
            quote=one.quote if whole else "",
            failed_at=one.failed_at if whole else "",
            next=next_step(
                one.failure, one.next_step, one.failed_at if whole else ""
            ).replace("{job}", one.job),
        )


class Why(ForecastView):
    """Reason of a job's state, and what would change it.

    `receipts`: of its newest preemptions, as the preempting or the preempted job.
    `forecast`: null unless the job waits for resources; `ending`: null unless it runs.
    `assumed`: its assumed run time and the basis, if its queue uses one. `holders`: the
    jobs that hold the GPUs for which it waits, and which of them ends first. `whose`: a
    note that the job belongs to another user, if it was requested by name. `failed`:
    why its newest attempt failed. `hang`: how its newest ended attempt hung, or "".
    `place`: its position among the `waiting` jobs of all
    queues; null for a job that is not queued. `slurm`: Slurm's reason for the wait, or
    "". `lent`: the services whose sleeping replicas lend GPUs to it, or "".
    """

    id: str
    name: str
    state: str
    reason: str
    code: str
    suggestions: list[str]
    receipts: list[ReceiptView]
    forecast: StartForecastView | None = None
    ending: ExpectedEndView | None = None
    assumed: str = ""
    whose: str = ""
    holders: str = ""
    failed: Failed | None = None
    hang: str = ""
    place: int | None = None
    waiting: int = 0
    slurm: str = ""
    lent: str = ""
