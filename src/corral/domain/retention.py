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
            raise ValueError(
                f"keep ended jobs for more than 0 s, and at least 1: {self}"
            )

    def __str__(self) -> str:
        return (
            f"a job is deleted {duration_text(self.seconds)} after its end, or when "
            f"{self.jobs:,} other jobs have ended after it"
        )

    def unknown(self, job: str) -> Forgotten:
        """Return a refusal for a job number that was assigned but has no job. It is
        unknown whether the job was deleted or never existed."""
        return Forgotten(
            f"there is no job {job}: it was deleted ({self}), or the number belongs to a "
            "request that was not a submission",
            hint="run: corral ps --all",
        )

    def refusal(self, what: str) -> Forgotten:
        """Return a refusal for a request for something that is not kept any more.
        `what` names it."""
        return Forgotten(f"{what} was deleted: {self}", hint="run: corral ps --all")
