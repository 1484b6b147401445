"""Routes of events: of one job, and of all that the caller sees."""

from typing import Annotated

from fastapi import APIRouter, Header, Query
from starlette.responses import Response

from corral.api import event_streams
from corral.api.job_lookup import find_job
from corral.api.job_visibility import seen_events, sight_of
from corral.api.jobs import Asker, Number, Within
from corral.domain.ids import NodeId
from corral.wire import api

router = APIRouter()


@router.get("/v1/jobs/{job}/events", response_model=api.Events)
async def events(
    job: str,
    house: Within,
    caller: Asker,
    after: Number = 0,
    follow: bool = False,
    last_event_id: Annotated[str | None, Header()] = None,
) -> api.Events | Response:
    """Return the events of a job, oldest first; with `follow`, as server-sent events
    until the job is over."""
    found_job = await find_job(house.control, job, caller)
    caller.check_job(found_job)
    return await house.events(found_job.id, after, follow, last_event_id, caller)


@router.get("/v1/events", response_model=api.Events)
async def all_events(
    house: Within,
    caller: Asker,
    after: Number = 0,
    follow: bool = False,
    node: Annotated[str | None, Query(max_length=300)] = None,
    newest: Annotated[int | None, Query(ge=1, le=1_000)] = None,
    last_event_id: Annotated[str | None, Header()] = None,
) -> api.Events | Response:
    """Return all events, oldest first; with `follow`, as server-sent events without
    end.

    `newest`: only the last N events, of the cluster or of one node.
    """
    if newest is not None or node is not None:
        name = None if node is None else NodeId(node)
        limit = newest or event_streams.PAGE
        store = house.control.store
        event_list = await store.events(
            after=after, job=None, limit=limit, node=name, newest=True
        )
        visible_events = await seen_events(
            house.control, sight_of(house.control, caller), event_list
        )
        return api.Events(events=[api.EventView.of(event) for event in visible_events])
    return await house.events(None, after, follow, last_event_id, caller)
