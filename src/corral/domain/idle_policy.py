"""Policy of a queue for jobs that hold idle GPUs; none by default."""

from dataclasses import dataclass
from math import inf


@dataclass(frozen=True, slots=True, kw_only=True)
class IdleRule:
    """A job is warned after so long with no kernel on any of its GPUs, and suspended after so long,
    with a save. None: that does not happen."""

    warn_seconds: float | None = None
    reclaim_seconds: float | None = None

    def __post_init__(self) -> None:
        given = [one for one in (self.warn_seconds, self.reclaim_seconds) if one is not None]
        if not given or not all(60 <= one < inf for one in given) or given != sorted(given):
            raise ValueError(f"a rule warns, then reclaims, after a minute or more: {self}")

    @property
    def notice_seconds(self) -> float:
        """Between the warning and the end."""
        if self.warn_seconds is None or self.reclaim_seconds is None:
            return 0.0
        return self.reclaim_seconds - self.warn_seconds
