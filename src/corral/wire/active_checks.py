"""Requests and answers of the HTTP API about active checks."""

from collections.abc import Sequence
from typing import Annotated, Literal, Self

from pydantic import BaseModel, ConfigDict, Field

from corral.domain.active_checks import CheckKind, CheckMeasure, CheckUp
from corral.wire.job_parts import ForecastView

Kind = Literal["matmul", "memory", "all-reduce", "link", "disk", "clock", "data"]


class CheckAsked(BaseModel):
    """Request for active checks.

    `nodes` empty: all nodes. `kinds`: the checks to run. `paths`: folders for the
    checks disk and data, in addition to their usual ones. A long check computes for
    `seconds`. The checks wait for a busy node, at most `max_wait_seconds`.
    """

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    nodes: Annotated[list[str], Field(max_length=10_000)] = []
    kinds: Annotated[list[Kind], Field(min_length=1, max_length=len(CheckKind))]
    paths: Annotated[
        list[Annotated[str, Field(min_length=1, max_length=4096)]], Field(max_length=8)
    ] = []
    seconds: Annotated[float, Field(gt=0, le=120)] = 5.0
    max_wait_seconds: Annotated[float, Field(ge=0, le=7 * 86400)] = 60.0


class CheckResult(ForecastView):
    """Last result of one check of a device. `result`: passed, failed, measured (there
    is nothing to compare with yet) or not run. `value` is in `unit`, `expected` is the
    lowest value that passes; `past`: earlier values, the newest last."""

    kind: str
    gpu: int | None
    device: str
    result: str
    text: str
    at: float
    value: float | None
    unit: str
    expected: float | None
    past: list[float]
    checkup: str

    @classmethod
    def of(cls, one: CheckMeasure) -> Self:
        return cls(**{name: getattr(one, name) for name in cls.model_fields})


class CheckWaiting(ForecastView):
    """Requested checks of one node. They wait for the node or, if `begun_at` is set,
    are running on it."""

    id: str
    kinds: list[str]
    by: str
    at: float
    until: float
    begun_at: float | None
    peer: str

    @classmethod
    def of(cls, one: CheckUp) -> Self:
        return cls(**{name: getattr(one, name) for name in cls.model_fields})


class CheckedNode(ForecastView):
    """Progress of the requested checks on one node. `state`: waiting, running, over.
    `jobs`: the jobs that keep the node busy."""

    node: str
    state: str
    jobs: list[str]
    health: str
    results: list[CheckResult]


class Checkup(ForecastView):
    """Progress of one request for checks. `unable`: nodes that cannot be checked,
    because no agent runs there permanently."""

    id: str
    nodes: list[CheckedNode]
    unable: list[str] = []

    @property
    def is_over(self) -> bool:
        return all(node.state == "over" for node in self.nodes)


def results_of(measures: Sequence[CheckMeasure]) -> list[CheckResult]:
    """Return the results in a stable order: by the kind of check, then by the device."""
    ordered = sorted(
        measures, key=lambda one: (list(CheckKind).index(one.kind), one.where)
    )
    return [CheckResult.of(check_measure) for check_measure in ordered]
