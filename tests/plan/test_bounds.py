"""Numbers that a plan may be asked with."""

from dataclasses import fields
from math import inf, nan
from typing import Any, get_type_hints

import pytest

from corral.domain.errors import SpecInvalid
from corral.plan.bounds import as_fields, bounds_of, check
from corral.plan.capacity.plan import CapacityRequest, SimpleNeed
from corral.plan.capacity.sizing import WaitTarget
from corral.plan.kinds import ASKS
from corral.plan.serve.plan import ServeRequest

REQUESTS = [
    *(ask.request for ask in ASKS.values()),
    CapacityRequest,
    SimpleNeed,
    WaitTarget,
]
# held against another number, or never typed
ELSEWHERE = {"shared", "seconds", "gpus_now"}
USUAL: dict[str, Any] = {
    "model": "llama-3.1-8b", "gpus": 8, "gpu": "h100-sxm", "days": 30, "qps": 1.0, "input": 100,
    "output": 100, "work": None, "run_hours": 1, "runs": 1, "run_gpus": 1, "seconds": 1,
}  # fmt: skip


def made(kind: type, **values: Any) -> Any:
    needed = {
        name: USUAL[name]
        for name in USUAL
        if name in {one.name for one in fields(kind)}
    }
    return kind(**needed | values)


BOUNDS = [(kind, name) for kind in REQUESTS for name in bounds_of(kind)]


@pytest.mark.parametrize("kind", REQUESTS)
def test_every_number_of_a_request_has_bounds(kind: type) -> None:
    hints = get_type_hints(kind).items()
    numbers = {
        name for name, hint in hints if hint in (int, float, int | None, float | None)
    }
    assert numbers - ELSEWHERE == bounds_of(kind).keys()
    check(made(kind))


@pytest.mark.parametrize(("kind", "name"), BOUNDS)
@pytest.mark.parametrize(
    ("value", "said"),
    [(nan, "NaN"), (inf, "infinite"), (-1, "-1"), (1e300, "larger than")],
)
def test_what_is_beyond_its_bounds_is_told_with_its_option_and_what_it_may_be(
    kind: type, name: str, value: float, said: str
) -> None:
    with pytest.raises(SpecInvalid) as refused:
        check(made(kind, **{name: value}))
    assert refused.value.message.startswith(
        f"--{name.replace('_', '-')} cannot be {said}"
    )
    assert any(letter.isdigit() for letter in refused.value.hint)


@pytest.mark.parametrize(("kind", "name"), BOUNDS)
def test_both_ends_of_the_bounds_are_within(kind: type, name: str) -> None:
    bound = bounds_of(kind)[name]
    for value in (bound.least, bound.most):
        check(made(kind, **{name: value}))


def test_only_options_of_the_request_are_told_as_its_fields() -> None:
    said = as_fields(
        "--itl-p90 or --gpu; run: corral plan prices --fetch FILE", ServeRequest
    )
    assert said == "itl_p90 or gpu; run: corral plan prices --fetch FILE"
