"""Receipts: records of what an interruption cost a job, and for which job it was
interrupted."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from corral.domain.cause import Cause
from corral.domain.coded import Coded
from corral.domain.ids import AttemptNumber, JobId
from corral.domain.units import counted_gpus, duration_text


class ReceiptKind(Coded):
    """The reason why a job was interrupted, as its receipt records it; TAKING is the
    receipt of a job that took the GPUs of others."""

    FAILURE = "failure", "an attempt failed; `cause` is the side at fault"
    PREEMPTION = "preemption", "the job was stopped so that another could start"
    RELOCATION = "relocation", "the job was moved to other nodes to make room"
    SHRINK = "shrink", "the job gave nodes to another job, and goes on with fewer"
    TAKING = "taking", "the job started on GPUs of the jobs in `others`"
    REQUEUE = "requeue", "a user requeued the job, to run it again"
    DRAIN = "drain", "a node of the job was being drained"
    SUSPENSION = "suspension", "the job was suspended"
    TIMEOUT = "timeout", "the job reached its max_duration"
    DEADLINE = "deadline", "the job did not start by its start_by"

    @property
    def has_loss(self) -> bool:
        """Return whether the job was interrupted while it ran and may have lost work."""
        return self not in (ReceiptKind.TAKING, ReceiptKind.DEADLINE)

    @property
    def is_preemption(self) -> bool:
        """Return whether the job was interrupted to make room for another job."""
        return self in _MAKES_ROOM


_MAKES_ROOM: Final = frozenset(
    {ReceiptKind.PREEMPTION, ReceiptKind.RELOCATION, ReceiptKind.SHRINK}
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Taken:
    """A job whose place was taken by another job. `name` is its name and id. `moved_to`
    are the names of its new nodes; "" if it was stopped. `nodes` of its `of_nodes`
    nodes were taken, if it goes on with the others; 0: all were. `loss` is its lost work as a
    part of a sentence; "" until its end is seen on all of its nodes."""

    job: JobId
    name: str
    queue: str = ""
    gpu_millis: int = 0
    moved_to: str = ""
    loss: str = ""
    nodes: int = 0
    of_nodes: int = 0

    @property
    def text(self) -> str:
        """Return a text about the job that was displaced. For example: took 2 GPUs from
        train (j3) of queue a (lost no work)."""
        name = f"{self.name} of queue {self.queue}" if self.queue else self.name
        loss = self.loss or "its processes are still stopping"
        if self.moved_to:
            return f"{name} was moved to {self.moved_to} to make room ({loss})"
        gpus = counted_gpus(self.gpu_millis)
        if self.nodes:
            rest = self.of_nodes - self.nodes
            return (
                f"took {self.nodes} of {self.of_nodes} nodes ({gpus}) from {name}, "
                f"which goes on with {rest} ({loss})"
            )
        return f"took {gpus} from {name} ({loss})"


def taken_text(taken: Sequence[Taken], needed_gpu_millis: int) -> str:
    """Return a text of what happened to each job. If more GPUs were stopped than
    needed, it says why."""
    jobs_text = "; ".join(taken_job.text for taken_job in taken)
    stopped_millis = sum(
        taken_job.gpu_millis for taken_job in taken if not taken_job.moved_to
    )
    is_partial = any(taken_job.nodes for taken_job in taken)
    if stopped_millis <= needed_gpu_millis or is_partial:
        return jobs_text
    owner_text = f"{taken[0].name}'s" if len(taken) == 1 else "each"
    needed = counted_gpus(needed_gpu_millis)
    return f"needed {needed}, but {owner_text} whole gang had to stop: {jobs_text}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Receipt:
    """Cost of an interruption, and the job that pays it. Lost work is in steps, seconds
    and GPU-seconds.

    Attempt 0: the job has ended before any placement. A preemption has two receipts:
    that of the victim, and that of the job which took its GPUs (a TAKING). A relocation
    also has two, and in them `restart_gpu_seconds` is the cost of the restart. `others`
    are the jobs on the other side. In a receipt of a TAKING, `taken` has details of
    each of them, and `needed_gpu_millis` is how much the job asked for.
    """

    job: JobId
    attempt: AttemptNumber
    kind: ReceiptKind
    cause: Cause
    culprit: str
    evidence: str
    steps_lost: int | None
    gpu_seconds_lost: float
    seen_at: float
    resumed_from_step: int | None = None
    seconds_lost: float | None = None  # None: not written down, or nothing had begun
    others: tuple[JobId, ...] = ()
    restart_gpu_seconds: float = 0.0
    taken: tuple[Taken, ...] = ()
    needed_gpu_millis: int = 0
    in_place: bool = False  # the next attempt began at once on the same seats

    @property
    def text(self) -> str:
        """Return the receipt as one line for people, without its time."""
        culprit = self.culprit if self.kind == ReceiptKind.FAILURE else ""
        cause_text = ": ".join(filter(None, (culprit, self.evidence))) or str(
            self.cause
        )
        text = f"{cause_text}; {self.loss}" if self.kind.has_loss else cause_text
        return f"{text}; restarted in place" if self.in_place else text

    @property
    def is_open(self) -> bool:
        """Return whether the lost work of a displaced job is still unknown."""
        return any(not taken_job.loss for taken_job in self.taken)

    def settled(self, lost: "Receipt") -> "Receipt":
        """Return this receipt of a TAKING with the lost work of one displaced job
        filled in. `lost` is the receipt of that job."""
        taken_jobs = tuple(
            replace(taken_job, loss=lost.loss)
            if taken_job.job == lost.job
            else taken_job
            for taken_job in self.taken
        )
        # one that an older version has written names them in its sentence alone
        evidence = (
            taken_text(taken_jobs, self.needed_gpu_millis)
            if taken_jobs
            else self.evidence
        )
        return replace(
            self,
            taken=taken_jobs,
            evidence=evidence,
            steps_lost=(self.steps_lost or 0) + (lost.steps_lost or 0),
            gpu_seconds_lost=self.gpu_seconds_lost + lost.gpu_seconds_lost,
        )

    @property
    def loss(self) -> str:
        """Return the lost work as a part of a sentence. For example: saved at step 40,
        lost 12 s of work."""
        step = self.resumed_from_step
        saved = "no save" if step is None else f"saved at step {step}"
        gpu_seconds = f"{self.gpu_seconds_lost:.1f} GPU-seconds since its "
        gpu_seconds += "start" if step is None else "last save"
        # what came after the save was no work
        if self.steps_lost == 0 and step is not None:
            gpu_seconds = f"{self.gpu_seconds_lost:.1f} GPU-seconds spent stopping"
        if self.steps_lost == 0:
            loss_text = "no work"
        elif self.seconds_lost is None:
            loss_text = gpu_seconds
        else:
            loss_text = f"{duration_text(self.seconds_lost)} of work"
        details = [f"{self.steps_lost} steps"] if self.steps_lost else []
        if self.gpu_seconds_lost and self.seconds_lost is not None:
            details.append(gpu_seconds)
        restart = self.restart_gpu_seconds
        restart_text = (
            f", and {restart:.1f} GPU-seconds to start again" if restart else ""
        )
        return (
            f"{saved}, lost {loss_text}"
            + (f" ({', '.join(details)})" if details else "")
            + restart_text
        )
