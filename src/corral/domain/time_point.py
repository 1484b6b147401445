"""Moments that the spec of a job sets: when the job may begin, when it must have
started, and when it is warned of its end."""

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

MOMENT_FORM: Final = "%Y-%m-%d %H:%M:%S UTC"
WARN_SECONDS: Final = 60.0  # as long before the end as Slurm's --signal warns
WARN_PART: Final = 0.1  # of its max_duration, where that is less


@dataclass(frozen=True, slots=True, kw_only=True)
class Moment:
    """Moment by the wall clock, in seconds since 1970, or as a delay after the
    submission; exactly one is set."""

    at: float | None = None
    after_seconds: float | None = None

    def __post_init__(self) -> None:
        if (self.at is None) == (self.after_seconds is None):
            raise ValueError(f"exactly one of at and after_seconds must be set: {self}")

    def is_after(self, other: "Moment") -> bool:
        """Return whether this moment is certainly not before the other one. False if
        that is unknown because one is a time and the other a delay."""
        if self.at is not None and other.at is not None:
            return self.at >= other.at
        if self.after_seconds is not None and other.after_seconds is not None:
            return self.after_seconds >= other.after_seconds
        return False

    def of(self, submitted_at: float) -> float:
        """Return the moment by the wall clock, for a job that was submitted at
        `submitted_at`."""
        return (
            self.at
            if self.at is not None
            else submitted_at + (self.after_seconds or 0.0)
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class EndWarning:
    """Warning that a job gets a certain time before its max_duration is over. It also
    requests a checkpoint.

    `signal` is the number of the signal; None sends none. If `before_seconds` is None,
    WARN_SECONDS or WARN_PART decides.
    """

    signal: int | None = None
    before_seconds: float | None = None

    def before(self, limit_seconds: float) -> float:
        """Return how many seconds before the end the job is warned. `limit_seconds` is
        its max_duration."""
        if self.before_seconds is not None:
            return min(self.before_seconds, limit_seconds)
        return min(WARN_SECONDS, WARN_PART * limit_seconds)


def moment_text(at: float) -> str:
    """Return a moment for people. For example: "2026-11-22 08:00:00 UTC"."""
    try:
        return datetime.fromtimestamp(at, UTC).strftime(MOMENT_FORM)
    except (ValueError, OverflowError, OSError):
        return f"{at:.0f} s after 1970"
