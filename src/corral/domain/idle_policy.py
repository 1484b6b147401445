"""Policy of a queue for jobs that hold idle GPUs. By default a queue has none."""

from dataclasses import dataclass
from math import inf


@dataclass(frozen=True, slots=True, kw_only=True)
class IdleRule:
    """Limits for a job that runs no kernel on any of its GPUs.

    A job is warned after `warn_seconds`, and suspended with a save after
    `reclaim_seconds`. None disables the respective step.
    """

    warn_seconds: float | None = None
    reclaim_seconds: float | None = None

    def __post_init__(self) -> None:
        limits = [
            limit
            for limit in (self.warn_seconds, self.reclaim_seconds)
            if limit is not None
        ]
        if (
            not limits
            or not all(60 <= limit < inf for limit in limits)
            or limits != sorted(limits)
        ):
            raise ValueError(
                f"warn and reclaim must be at least 60 s, and warn not later: {self}"
            )

    @property
    def notice_seconds(self) -> float:
        """Return the seconds between the warning and the suspension; 0 if either step
        is disabled."""
        if self.warn_seconds is None or self.reclaim_seconds is None:
            return 0.0
        return self.reclaim_seconds - self.warn_seconds
