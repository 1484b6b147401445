"""Trial of a new revision: what its replicas and those of the old one have done since it
began, and the verdict."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from corral.control.services.counter_sums import NOTHING, RevisionSum, ServiceSum
from corral.control.services.service_rates import latency_counts
from corral.domain.service import Service
from corral.route.canary import (
    CanaryOutcome,
    CanaryRules,
    CanaryVerdict,
    RevisionCounts,
    judge_canary,
)

VERDICTS: Final = {CanaryOutcome.PASSED: True, CanaryOutcome.TURNED_BACK: False}


@dataclass(frozen=True, slots=True, kw_only=True)
class CanaryTrial:
    """A trial, and the sums of both revisions when it began. After a restart of the
    head, the counts begin again; the time of the trial goes on."""

    revision: int
    since: float
    old: RevisionSum
    new: RevisionSum

    @classmethod
    def of(
        cls, service: Service, sums: ServiceSum, known: "CanaryTrial | None"
    ) -> "CanaryTrial | None":
        """Return the present trial of a service; None while none has begun."""
        trial, since = service.on_trial, service.trial_since
        if trial is None or since is None:
            return None
        if known is not None and (known.revision, known.since) == (trial, since):
            return known
        return cls(
            revision=trial,
            since=since,
            old=sums.revisions.get(service.current, NOTHING),
            new=sums.revisions.get(trial, NOTHING),
        )

    def judge(
        self,
        service: Service,
        sums: ServiceSum,
        bounds: Mapping[str, tuple[float, ...]],
        wall: float,
    ) -> CanaryVerdict | None:
        """Return the verdict so far; None if nothing was measured yet. `bounds`: those
        of the histograms, by name."""
        seconds = service.spec_of(self.revision).canary.seconds
        if seconds <= 0 or not bounds:
            return None
        old = sums.revisions.get(service.current, NOTHING).minus(self.old)
        new = sums.revisions.get(self.revision, NOTHING).minus(self.new)
        return judge_canary(
            _counts(old, bounds),
            _counts(new, bounds),
            CanaryRules(seconds=seconds),
            elapsed_seconds=wall - self.since,
            failed_starts=service.trial_fruitless,
            last_output=service.last_end,
        )


def _counts(
    change: RevisionSum, bounds: Mapping[str, tuple[float, ...]]
) -> RevisionCounts:
    """Return the counts of a revision. An attempt that was lost there counts as a failed
    request, although another replica may have answered it."""
    return RevisionCounts(
        requests=change.requests + change.losses,
        errors=change.failures + change.losses,
        ttft=latency_counts(change.ttft, bounds["ttft"]),
        itl=latency_counts(change.itl, bounds["itl"]),
    )
