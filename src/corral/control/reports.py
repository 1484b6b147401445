"""A report of the ledger: what is recorded, with what is held now."""

import asyncio
from collections.abc import Sequence as Seq

from corral.control.control import Control
from corral.domain.account import Account
from corral.domain.ids import JobId
from corral.insight.present import open_accounts
from corral.insight.reports import Report, report


async def report_of(
    control: Control, kind: str, by: str, *, first: int, last: int, job: JobId | None = None
) -> Report:
    """Of whole days (since 1970, UTC). `kind` and `by` as `insight.reports` has them. `job`: this
    one's alone."""
    store = control.store
    recorded: Seq[Account]
    if by == "job" or job is not None:
        recorded = await store.accounts(first=first, last=last, job=job)
    else:
        recorded = await store.days(first=first, last=last)
    now = (*open_accounts(control.world, control.now().wall), *control.ledger.waiting())
    live = [one for one in now if first <= one.day <= last and job in (None, one.job)]
    return await asyncio.to_thread(report, kind, by, [*recorded, *live])
