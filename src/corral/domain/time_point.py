"""Moments that a job names: when it may begin, by when it must have started, when it is
warned."""

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
            raise ValueError(
                f"a moment is by the clock or after the submission: {self}"
            )

    def is_after(self, other: "Moment") -> bool:
        """Return whether this can never come before the other; False while that is
        unknown."""
        if self.at is not None and other.at is not None:
            return self.at >= other.at
        if self.after_seconds is not None and other.after_seconds is not None:
            return self.after_seconds >= other.after_seconds
        return False

    def of(self, submitted_at: float) -> float:
        """The moment by the wall clock, for a job that was submitted then."""
        return (
            self.at
            if self.at is not None
            else submitted_at + (self.after_seconds or 0.0)
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class EndWarning:
    """Warning a given time before max_duration is over. It also requests a checkpoint.

    `signal`: its number; None sends none. `before_seconds` None: WARN_SECONDS or
    WARN_PART.
    """

    signal: int | None = None
    before_seconds: float | None = None

    def before(self, limit_seconds: float) -> float:
        """Return the seconds before the end of a max_duration of `limit_seconds`."""
        if self.before_seconds is not None:
            return min(self.before_seconds, limit_seconds)
        return min(WARN_SECONDS, WARN_PART * limit_seconds)


def moment_text(at: float) -> str:
    """A moment for people: "2026-11-22 08:00:00 UTC"."""
    try:
        return datetime.fromtimestamp(at, UTC).strftime(MOMENT_FORM)
    except (ValueError, OverflowError, OSError):
        return f"{at:.0f} s after 1970"
