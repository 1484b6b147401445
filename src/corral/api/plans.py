"""Routes of plans: POST /v1/plan/KIND takes a request and returns a report. Plans do
not change the cluster."""

from collections.abc import Awaitable, Callable

from fastapi import APIRouter, Response
from pydantic import BaseModel

from corral.api.jobs import Asker, Within
from corral.domain.errors import Unsupported
from corral.plan.kinds import ASKS, PlanKind
from corral.wire.plans import PlanReport, form_of

router = APIRouter()


def _make_plan_endpoint(kind: str, ask: PlanKind) -> Callable[..., Awaitable[Response]]:
    async def answer(body: BaseModel, house: Within, caller: Asker) -> Response:
        """Return the planner's report. It is computed in a separate process."""
        if house.planner is None:
            raise Unsupported(
                "the planner does not run on this head",
                hint="run on your machine: corral plan",
            )
        request = body.model_dump_json().encode()
        report = await house.planner.plan(kind, request, by=caller.name)
        return Response(report, media_type="application/json")

    answer.__annotations__["body"] = form_of(ask.request)
    return answer


for _kind, _ask in ASKS.items():
    router.add_api_route(
        f"/v1/plan/{_kind}",
        _make_plan_endpoint(_kind, _ask),
        methods=["POST"],
        response_model=PlanReport,
        name=f"plan_{_kind}",
    )
