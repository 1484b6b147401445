"""Retention of ended jobs."""

from dataclasses import dataclass

from corral.domain.errors import Forgotten
from corral.domain.units import DAY_SECONDS, duration_text


@dataclass(frozen=True, slots=True, kw_only=True)
class Retention:
    """Limits for how long ended jobs are kept: a time since the end, and a number of
    jobs. Both apply."""

    seconds: float = 30 * DAY_SECONDS
    jobs: int = 50_000

    def __post_init__(self) -> None:
        if self.seconds <= 0 or self.jobs < 1:
            raise ValueError(f"jobs are kept for a while, and some of them: {self}")

    def __str__(self) -> str:
        return (
            f"a job is forgotten {duration_text(self.seconds)} after its end, or when "
            f"{self.jobs:,} others have ended after it"
        )

    def unknown(self, job: str) -> Forgotten:
        """Return a refusal for a job number that was assigned but has no job. It is
        unknown whether the job was deleted or never existed."""
        return Forgotten(
            f"there is no job {job}: it is not kept any more ({self}), or its number was that of "
            "another request and never a job's",
            hint="run: corral ps --all",
        )

    def refusal(self, what: str) -> Forgotten:
        """Return a refusal for a request for something that is not kept any more.
        `what` names it."""
        return Forgotten(
            f"{what} is not kept any more: {self}", hint="run: corral ps --all"
        )
