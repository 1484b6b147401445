"""Requests for plans, and reports, in the form in which they are sent."""

import re
from collections.abc import Mapping
from dataclasses import MISSING, fields
from dataclasses import Field as DataclassField
from typing import Annotated, Any, Self, get_origin, get_type_hints

from pydantic import BaseModel, ConfigDict, FailFast, Field, create_model

from corral.plan import report as plan
from corral.plan.form_choices import names_of
from corral.wire.job_parts import ForecastView

MOST_LETTERS = 100_000  # of a text: a model's config.json fits


def form_of(request: type) -> type[BaseModel]:
    """Return a pydantic model that validates the body of a planning request of this
    class. It refuses unknown fields and values of another type. The description of each
    field comes from the docstring of the request class; `x-names` holds the catalog's
    names for the field."""
    hints, descriptions = get_type_hints(request), _described(request.__doc__ or "")
    field_definitions: dict[str, Any] = {
        field.name: (
            _add_fail_fast(hints[field.name]),
            _build_field(field, descriptions[field.name]),
        )
        for field in fields(request)
    }
    plan_model: type[BaseModel] = create_model(
        f"{request.__name__}Plan",
        __config__=ConfigDict(
            extra="forbid",
            frozen=True,
            allow_inf_nan=False,
            str_max_length=MOST_LETTERS,
        ),
        **field_definitions,
    )
    return plan_model


def _described(docstring: str) -> dict[str, str]:
    """Return the description of each attribute by name, from a docstring's section
    "Attributes:"."""
    _, _, attributes = docstring.partition("Attributes:")
    descriptions = re.findall(
        r"^ {8}(\w+): (.+(?:\n {12}.+)*)", attributes, re.MULTILINE
    )
    return {name: " ".join(text.split()) for name, text in descriptions}


def _add_fail_fast(hint: Any) -> Any:
    """Return the type such that validation stops at the first wrong entry of a list,
    because each further entry would add an error."""
    return Annotated[hint, FailFast()] if get_origin(hint) in (tuple, list) else hint


def _build_field(field: DataclassField[Any], says: str) -> Any:
    names = names_of(field.name)
    field_options: dict[str, Any] = {"description": says}
    if names:
        field_options["json_schema_extra"] = {"x-names": names}
    if field.default is not MISSING:
        return Field(default=field.default, **field_options)
    if field.default_factory is MISSING:
        return Field(**field_options)
    return Field(default_factory=field.default_factory, **field_options)


class PlanColumn(ForecastView):
    name: str
    unit: str


class PlanTable(ForecastView):
    title: str
    columns: list[PlanColumn]
    rows: list[list[plan.Cell]]
    note: str


class PlanAnswer(ForecastView):
    """One number of a report. `band`: the measured relative error of such numbers, in
    both directions. `low`, `high`: the possible range in the unit of the value, if the
    error differs by direction."""

    name: str
    value: plan.Cell
    unit: str
    band: float | None
    note: str
    low: float | None
    high: float | None


class PlanReport(ForecastView):
    """Report of a plan. `data` has all computed values."""

    title: str
    verdict: str
    answers: list[PlanAnswer]
    tables: list[PlanTable]
    assumed: list[str]
    sources: list[str]
    warnings: list[str]
    data: dict[str, Any]

    @classmethod
    def of(cls, report: plan.PlannerReport) -> Self:
        report_data: Mapping[str, Any] = report.as_data()
        return cls.model_validate(
            {name: report_data[name] for name in cls.model_fields}
        )
