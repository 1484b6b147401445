"""Routes of gateways that run elsewhere: the state that they serve by, and the counters
that they send."""

from typing import Annotated

from fastapi import APIRouter, Query, Request
from starlette.responses import Response

from corral.api.errors import RequestInvalid
from corral.api.jobs import Asker, Within
from corral.wire.gateway_counters import decode_counters
from corral.wire.gateway_routes import COUNTERS_PATH, ROUTES_PATH

router = APIRouter()


@router.get(ROUTES_PATH)
async def routes(
    house: Within, known: Annotated[int, Query(ge=0, le=2**62)] = 0
) -> Response:
    """Return the routes of the services for a gateway, with the hashes of the tokens
    that may call them. If `known` is their version, the answer is empty (204)."""
    published = house.control.routes
    if published.current is not None and published.current.version == known:
        return Response(status_code=204)
    return Response(
        published.text_for(house.control.world),
        media_type="application/json",
        headers={"Cache-Control": "no-store"},
    )


@router.post(COUNTERS_PATH, status_code=202)
async def counters(
    request: Request,
    house: Within,
    caller: Asker,
    gateway: Annotated[str, Query(min_length=1, max_length=200)],
) -> dict[str, int]:
    """Add the counters of a gateway, as its /internal/counters returns them. They may be
    sent as often as needed: each request is added once. `gateway`: a name of the gateway
    that stays the same while it runs."""
    try:
        report = decode_counters(await request.body())
    except ValueError as error:
        raise RequestInvalid(
            f"these are not the counters of a gateway: {error}"
        ) from None
    control = house.control
    control.traffic.take(f"{caller.name}/{gateway}", report, control.serving_seconds())
    return {"processes": len(report.processes)}
