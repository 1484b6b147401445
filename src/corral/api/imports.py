"""Routes of history: jobs that another system ran, from which starts and ends of jobs
are forecast."""

from typing import Annotated

from fastapi import APIRouter, Query

from corral.api.job_visibility import sight_of
from corral.api.jobs import Asker, Within
from corral.control.runtime_learning import learned_of
from corral.wire import imports as wire

router = APIRouter()


@router.post("/v1/imports")
async def put_imports(
    body: wire.ImportBody, house: Within, caller: Asker, dry_run: bool = False
) -> wire.ImportDone:
    """Store the imported jobs that are not known yet. With `dry_run`, only count them."""
    rows = [job.to_domain() for job in body.jobs]
    control, ids = house.control, {row.id for row in rows}
    if dry_run:
        known_imports = await control.store.known_imports(sorted(ids))
        return wire.ImportDone(new=len(ids) - known_imports, known=known_imports)
    sources = sorted({id.partition(":")[0] for id in ids})
    entry = caller.entry(
        control.clock.wall(), on=", ".join(sources), detail=f"{len(ids)} jobs"
    )
    new_count = await control.store.keep_imported(rows, entry=entry)
    if new_count:
        control.learning = await learned_of(control.store, control.world, control.now())
        if house.forecasts is not None:
            house.forecasts.learn_anew()
    return wire.ImportDone(new=new_count, known=len(ids) - new_count)


@router.get("/v1/imports")
async def imports(
    house: Within,
    caller: Asker,
    limit: Annotated[int, Query(ge=1, le=wire.MOST_ROWS)] = 100,
    before: Annotated[str | None, Query(max_length=300)] = None,
) -> wire.ImportedJobs:
    """Return imported jobs, the last to end first; with `before`, the jobs that follow
    the job of this id in that order."""
    rows = await house.control.store.imported(limit=limit, before=before)
    sight = sight_of(house.control, caller)
    return wire.ImportedJobs(
        jobs=wire.rows_of([row for row in rows if sight.of(row.queue, row.user)])
    )
