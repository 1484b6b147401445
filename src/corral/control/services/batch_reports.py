"""Newest reports of the batches that run, by service."""

from dataclasses import dataclass, field, replace
from typing import Final

from corral.domain.batch import BatchId
from corral.domain.ids import ServiceName
from corral.route.batch_demand import BatchWork

STALE_SECONDS: Final = 120.0


@dataclass(frozen=True, slots=True)
class _Report:
    service: ServiceName
    work: BatchWork
    at: float


@dataclass(slots=True)
class BatchReports:
    """Work that each batch has left. It is known again soon after a new head leads."""

    _reports: dict[BatchId, _Report] = field(default_factory=dict)

    def take(
        self, batch: BatchId, service: ServiceName, work: BatchWork, now: float
    ) -> None:
        """Take the newest report of a batch. `now`: seconds of the serving clock."""
        if work.tokens_left > 0:
            self._reports[batch] = _Report(service, work, now)
        else:
            self.drop(batch)

    def drop(self, batch: BatchId) -> None:
        """Forget a batch that is over."""
        self._reports.pop(batch, None)

    def of(self, service: ServiceName, now: float) -> list[BatchWork]:
        """Return the work of a service's batches, with the time that is left now. A
        batch whose job does not run, and so reports nothing, needs no replica."""
        return [
            replace(
                report.work, seconds_left=report.work.seconds_left - (now - report.at)
            )
            for report in self._reports.values()
            if report.service == service and now - report.at < STALE_SECONDS
        ]
