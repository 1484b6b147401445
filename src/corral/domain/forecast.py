"""What a head learns from: how long jobs ran, and what waiting ones were told of their start."""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from corral.domain.attempt import Attempt
from corral.domain.ids import JobId, QueueName, UserName
from corral.domain.job import Job
from corral.domain.resources import Shape

_DIGITS: Final = re.compile(r"\d+")
_SEPARATORS: Final = "-_."


@dataclass(frozen=True, slots=True, kw_only=True)
class Ran:
    """A job that is over: how long its attempts have held their seats, in seconds together.

    `stem` is its name without its numbers; the other times are wall clock.
    """

    job: JobId
    user: UserName
    queue: QueueName
    stem: str
    shape: Shape
    priority: int
    preemptible: bool
    seconds: float
    submitted_at: float
    ended_at: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """When a waiting job was told that it would start, in seconds from `at` (wall clock).

    `drawn` is what the replays gave, `low` to `high` what was told. `waited_seconds` is what it
    came to; None: it still waits.
    """

    job: JobId
    at: float
    drawn_low_seconds: float
    drawn_high_seconds: float
    low_seconds: float
    high_seconds: float
    waited_seconds: float | None = None


def stem_of(name: str) -> str:
    """The name without its numbers, so that train-17 and train-18 are kin."""
    return _DIGITS.sub("", name).strip(_SEPARATORS) or name


def ran_of(job: Job, attempts: Iterable[Attempt]) -> Ran | None:
    """How long a job that is over has run; None for one that is not over, or that never ran."""
    spans = [max(0.0, one.ended_at - one.placed_at) for one in attempts if one.ended_at is not None]
    if not job.is_final or job.ended_at is None or not spans:
        return None
    return Ran(
        job=job.id,
        user=job.owner,
        queue=job.spec.queue,
        stem=stem_of(job.spec.name),
        shape=job.spec.shapes[0],
        priority=job.spec.priority,
        preemptible=job.spec.preemptible,
        seconds=sum(spans),
        submitted_at=job.submitted_at,
        ended_at=job.ended_at,
    )
