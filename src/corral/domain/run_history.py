"""History that a head learns from: run times of jobs, and predictions of starts."""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from corral.domain.attempt import Attempt
from corral.domain.ids import JobId, QueueName, UserName
from corral.domain.job import Job, JobSpec
from corral.domain.job_states import JobState
from corral.domain.observed_state import Facts
from corral.domain.resources import Shape
from corral.domain.units import span_text
from corral.domain.world import World

PERCENT: Final = 80  # share of outcomes that an interval should contain
FEW: Final = 20  # outcomes, below which the record shows little

_DIGITS: Final = re.compile(r"\d+")
_SEPARATORS: Final = "-_."


@dataclass(frozen=True, slots=True, kw_only=True)
class Ran:
    """Run of a job that is over, from which run times are learned. `seconds` is the
    total time for which its attempts have held their nodes.

    `stem` is the job's name without its numbers. `served_seconds` is the part of
    `seconds` that was not lost, as far as that was recorded. The other times are wall
    clock.
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
    served_seconds: float = 0.0
    is_done: bool = True  # it ended by itself, and well: only then others end as it did


@dataclass(frozen=True, slots=True, kw_only=True)
class StartForecastTold:
    """Record of a predicted start that a user was shown, in seconds from `at` (wall
    clock).

    `drawn_low_seconds` and `drawn_high_seconds` are the interval that the simulations
    gave. `low_seconds` and `high_seconds` are the published interval. `waited_seconds`
    is the actual wait; None: the job still waits.
    """

    job: JobId
    at: float
    drawn_low_seconds: float
    drawn_high_seconds: float
    low_seconds: float
    high_seconds: float
    waited_seconds: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TimeSpan:
    """Interval in seconds from now, from `low_seconds` to `high_seconds`. If the latter
    is None, the end lies beyond the simulated time."""

    low_seconds: float
    high_seconds: float | None

    def __post_init__(self) -> None:
        upper_seconds = (
            self.low_seconds if self.high_seconds is None else self.high_seconds
        )
        if not 0 <= self.low_seconds <= upper_seconds:
            raise ValueError(
                f"a span must not begin before now or after its end: {self}"
            )

    def __str__(self) -> str:
        """Return a text of the interval. For example: in 12 to 40 min; now, if the
        start is certain."""
        if self.high_seconds == 0:
            return "now"
        return span_text(self.low_seconds, self.high_seconds)


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangeSuggestion:
    """Change to a waiting job with which it would start sooner, such as "with 1 node".
    `stops` names the jobs that the changed job would then be likely to stop, such as "2
    preemptible jobs of queue a"; "" for none."""

    change: str
    starts: TimeSpan
    stops: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class StartForecast:
    """Predicted intervals of a job's start and end, each meant to contain the true
    value PERCENT times of 100.

    `runs` is the number of simulations of the future from the present state. `known` is
    the share of their jobs whose run time comes from similar jobs. `limited` is the
    share of the others with a limit; the rest is a guess. `told` is the number of
    recorded outcomes, and `held` the percentage of them within the published intervals;
    None without outcomes. `row` is the record of this prediction. `starts_by` is when
    the job is given up if it has not started (wall clock).
    """

    starts: TimeSpan
    ends: TimeSpan
    runs: int
    known: float
    limited: float
    told: int
    held: float | None
    row: StartForecastTold
    instead: tuple[ChangeSuggestion, ...] = ()
    starts_by: float | None = None

    @property
    def is_bounded(self) -> bool:
        """Return whether the predicted start has an upper bound. Only then can the
        outcome be compared with the prediction."""
        return self.starts.high_seconds is not None

    @property
    def may_be_given_up(self) -> bool:
        """Return whether the job's start_by may come before its start."""
        upper_seconds = self.starts.high_seconds
        return self.starts_by is not None and (
            upper_seconds is None or upper_seconds > self._left_seconds
        )

    @property
    def is_too_late(self) -> bool:
        """Return whether the job is likely to be given up, because its start_by comes
        before the whole predicted interval."""
        return self.may_be_given_up and self.starts.low_seconds >= self._left_seconds

    @property
    def _left_seconds(self) -> float:
        return (self.starts_by or self.row.at) - self.row.at

    @property
    def record(self) -> str:
        """Return a text of how reliable earlier predictions were, as a part of a
        sentence."""
        if self.held is None:
            return f"no earlier forecasts to compare; {self.basis}"
        if self.told < FEW:
            return f"a guess: {self._coverage_text}"
        return f"{self.held:.0f} % of the last {self.told} forecasts were right"

    @property
    def _coverage_text(self) -> str:
        """Return a text of how many recorded starts were within the published interval.
        For example: only 5 earlier forecasts can be compared, 1 of them right."""
        within = round(self.told * (self.held or 0.0) / 100)
        if self.told == 1:
            return (
                "only 1 earlier forecast can be compared, and it was "
                f"{'right' if within else 'wrong'}"
            )
        return f"only {self.told} earlier forecasts can be compared, {within} of them right"

    @property
    def basis(self) -> str:
        """Return a text of what the run times in the prediction are based on: similar
        jobs, limits or guesses."""
        if self.known >= 1.0:
            return "based on the run times of similar jobs"
        if self.known > 0.0:
            return (
                f"based on the run times of similar jobs for {100 * self.known:.0f} % of "
                f"the jobs, {self._fallback_basis}"
            )
        if self.limited > 0.0:
            return (
                "based on the time limits of jobs"
                if self.limited >= 1.0
                else "based on time limits, and on guesses for jobs without one"
            )
        return "a guess: no job has a time limit, and no similar job has ended"

    @property
    def _fallback_basis(self) -> str:
        """Return the basis for jobs without similar ended jobs."""
        if self.limited <= 0.0:
            return "and on guesses for the others"
        return (
            "and on time limits for the others"
            if self.limited >= 1.0
            else "and on time limits or guesses for the others"
        )

    def __str__(self) -> str:
        """Return the prediction as a text. For example: in 12 to 40 min (80 % likely;
        83 % of the last 200 forecasts were right). With few records the percentage is
        left out: in 12 to 40 min (a guess: only 1 earlier forecast can be compared, and
        it was right)."""
        if self.held is None or self.told < FEW:
            return f"{self.starts} ({self.record})"
        return f"{self.starts} ({PERCENT} % likely; {self.record})"


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpectedEnd:
    """Expected end of a running job, `ends`; None if it is unknown. For a training
    loop, it is computed from the rate of its steps: `step` of `until` are done. For
    other jobs, it is computed from `kin` similar jobs that ran longer.

    The interval is meant to contain the true end `percent` times of 100; None: there
    are too few jobs for a percentage. `ends_by` is the job's limit (wall clock).
    """

    ends: TimeSpan | None
    percent: int | None
    kin: int
    ends_by: float | None
    step: int | None = None
    until: int | None = None

    def __str__(self) -> str:
        """Return the expected end as a text. For example: ends in 5 to 9 min (80 %
        likely), judging by 12 similar jobs. "" without data."""
        if self.ends is None:
            return ""
        if self.step is not None and self.until is not None:
            return (
                f"ends {self.ends}, judging by its step rate (step {self.step:,} of "
                f"{self.until:,})"
            )
        percent = f" ({self.percent} % likely)" if self.percent is not None else ""
        like = "1 similar job" if self.kin == 1 else f"{self.kin} similar jobs"
        return f"ends {self.ends}{percent}, judging by {like}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """Input of a start forecast: which job is asked about, and all data for the answer,
    as an immutable value.

    `wall` and `serving` are the present moment on the head's two clocks. `runs` are
    ended jobs, the newest last. `told` are earlier predictions, the newest outcome
    last. `instead` are changes to the job that are also simulated, each with its name.
    """

    world: World
    facts: Facts
    wall: float
    serving: float
    runs: tuple[Ran, ...]
    told: tuple[StartForecastTold, ...]
    job: JobId
    instead: tuple[tuple[str, JobSpec], ...] = ()


def stem_of(name: str) -> str:
    """Return the name without its numbers, so that train-17 and train-18 count as
    similar jobs."""
    return _DIGITS.sub("", name).strip(_SEPARATORS) or name


def ran_of(job: Job, attempts: Iterable[Attempt]) -> Ran | None:
    """Return how long an ended job ran; None if it has not ended or never ran."""
    spans = [
        max(0.0, attempt.ended_at - attempt.placed_at)
        for attempt in attempts
        if attempt.ended_at is not None
    ]
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
        served_seconds=job.served_seconds or sum(spans),
        is_done=job.state == JobState.DONE,
    )
