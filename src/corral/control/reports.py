"""A report of the ledger: the recorded usage together with the usage of allocations
that are still held."""

import asyncio
import sys
from collections.abc import Callable
from itertools import chain

from corral.control.control import Control
from corral.domain.ids import JobId
from corral.domain.ledger import UsageRecord
from corral.insight.open_accounts import OpenAllocations, open_accounts
from corral.insight.reports import UsageReport, drained, report


async def report_of(
    control: Control,
    kind: str,
    by: str,
    *,
    first: int,
    last: int,
    job: JobId | None = None,
    limit: int = sys.maxsize,
    shown: Callable[[UsageRecord], UsageRecord] | None = None,
) -> UsageReport:
    """Return a usage report of the whole days from `first` to `last` (days since 1970,
    UTC).

    `kind` and `by` are as in `insight.reports`. `job` restricts the report to one job.
    `limit` is the maximum number of rows. `shown` changes each account to what the
    reader may see. The sums are made in a thread, since heartbeats and placement wait
    for the event loop.
    """
    store = control.store
    of_jobs = by == "job" or job is not None
    if of_jobs:
        recorded = await store.accounts(first=first, last=last, job=job)
    else:
        recorded = await store.days(first=first, last=last)
    open_allocations = OpenAllocations.of(control.world, control.now().wall)
    waiting_tokens = control.traffic.tokens.waiting(control.world, control.now().wall)
    pending_records = chain(control.ledger.waiting(), () if of_jobs else waiting_tokens)

    def summed() -> UsageReport:
        now = chain(open_accounts(open_allocations), pending_records)
        live = (
            usage_record
            for usage_record in now
            if first <= usage_record.day <= last and job in (None, usage_record.job)
        )
        accounts = chain(drained(recorded), live)
        return report(
            kind, by, accounts if shown is None else map(shown, accounts), limit
        )

    return await asyncio.to_thread(summed)
