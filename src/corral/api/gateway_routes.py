"""Routes of gateways that run elsewhere: the state that they serve by, and the counters
that they send."""

from typing import Annotated

from fastapi import APIRouter, Query, Request
from starlette.responses import Response

from corral.api.auth import Caller
from corral.api.errors import RequestInvalid
from corral.api.jobs import Asker, Within
from corral.wire.gateway_counters import decode_counters
from corral.wire.gateway_routes import COUNTERS_PATH, ROUTES_PATH

router = APIRouter()


@router.get(ROUTES_PATH)
async def routes(
    house: Within,
    caller: Asker,
    known: Annotated[int, Query(ge=0, le=2**62)] = 0,
    gateway: Annotated[str, Query(max_length=200)] = "",
) -> Response:
    """Return the routes of the services for a gateway, with the hashes of the tokens
    that may call them. If `known` is their version, the answer is empty (204). Limits of
    users are the parts that this gateway grants. `gateway`: its name, as for its
    counters."""
    control = house.control
    name = _gateway_name(caller, gateway)
    control.traffic.meet(name, control.serving_seconds())
    published = control.routes
    if published.current is not None and published.current.version == known:
        return Response(status_code=204)
    return Response(
        published.text_for(control.world, name),
        media_type="application/json",
        headers={"Cache-Control": "no-store"},
    )


@router.post(COUNTERS_PATH, status_code=202)
async def counters(
    request: Request,
    house: Within,
    caller: Asker,
    gateway: Annotated[str, Query(min_length=1, max_length=200)],
    kept: bool = False,
) -> dict[str, int]:
    """Add the counters of a gateway, as its /internal/counters returns them. They may be
    sent as often as needed: each request is added once. `gateway`: a name of the gateway
    that stays the same while it runs. `kept`: these are the last counters of a process
    that has ended."""
    try:
        report = decode_counters(await request.body())
    except ValueError as error:
        raise RequestInvalid(
            f"these are not the counters of a gateway: {error}"
        ) from None
    control, now = house.control, house.control.serving_seconds()
    if kept:
        control.traffic.take_kept(report, now)
    else:
        control.traffic.take(_gateway_name(caller, gateway), report, now)
    return {"processes": len(report.processes)}


def _gateway_name(caller: Caller, gateway: str) -> str:
    """Return the name of a gateway: another user's gateway has another one."""
    return f"{caller.name}/{gateway}"
