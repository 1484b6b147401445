"""Routes of plans: POST /v1/plan/KIND, a request in, a report out. They touch no cluster."""

from collections.abc import Callable
from dataclasses import fields, replace

from fastapi import APIRouter
from pydantic import BaseModel

from corral.domain.errors import Refusal
from corral.plan.asks import ASKS, Ask
from corral.plan.bounds import as_fields
from corral.wire.plans import PlanReport, form_of

router = APIRouter()


def _endpoint(ask: Ask) -> Callable[[BaseModel], PlanReport]:
    form = form_of(ask.request)
    names = [field.name for field in fields(ask.request)]

    def answer(body: BaseModel) -> PlanReport:
        """What the planner says. It runs beside the head's loop, in a thread."""
        try:
            report = ask.answer(ask.request(**{name: getattr(body, name) for name in names}))
        except Refusal as error:
            error.message = as_fields(error.message, ask.request)
            error.hint = as_fields(error.hint, ask.request)
            raise
        told = tuple(as_fields(line, ask.request) for line in report.assumed)
        return PlanReport.of(replace(report, assumed=told))

    answer.__annotations__["body"] = form
    return answer


for _kind, _ask in ASKS.items():
    router.add_api_route(
        f"/v1/plan/{_kind}",
        _endpoint(_ask),
        methods=["POST"],
        response_model=PlanReport,
        name=f"plan_{_kind}",
    )
