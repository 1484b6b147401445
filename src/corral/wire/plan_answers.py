"""Answers to planning requests: JSON in, JSON out."""

from dataclasses import fields, replace

from corral.domain.errors import Refusal
from corral.plan.bounds import as_fields
from corral.plan.kinds import ASKS
from corral.wire.plans import PlanReport, form_of


def report_of(kind: str, request: bytes) -> bytes:
    """Validate a planning request of this kind (JSON), and return its report as JSON.

    Raises: Refusal, with the names of the request's fields.
    """
    ask = ASKS[kind]
    form = form_of(ask.request).model_validate_json(request)
    names = [field.name for field in fields(ask.request)]
    try:
        report = ask.answer(
            ask.request(**{name: getattr(form, name) for name in names})
        )
    except Refusal as error:
        error.message = as_fields(error.message, ask.request)
        error.hint = as_fields(error.hint, ask.request)
        raise
    assumed = tuple(as_fields(line, ask.request) for line in report.assumed)
    return PlanReport.of(replace(report, assumed=assumed)).model_dump_json().encode()
