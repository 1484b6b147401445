"""plan reliability in plain words: GPUs of a type for so many days."""

import pytest

from corral.domain.errors import NotFound, SpecInvalid
from corral.plan.reliability.plan import USUAL, reliability
from corral.plan.reliability.report import report
from corral.plan.reliability.request import ReliabilityRequest
from corral.plan.report import PlannerReport


def answer(request: ReliabilityRequest) -> PlannerReport:
    return report(reliability(request))


def test_gpus_of_a_type_are_nodes_that_fail() -> None:
    told = answer(ReliabilityRequest("llama-3.1-405b", gpus=16_384, days=54))
    assert told.title == "Reliability: 2,048 nodes of 8 GPUs, 54 days"
    # 13 x 405.85 G bytes
    assert any("405" in line or "5,27" in line for line in told.assumed)


def test_a_model_and_its_parameters_say_the_same() -> None:
    named = answer(ReliabilityRequest("llama-3.1-405b", gpus=1_024, days=30))
    counted = answer(
        ReliabilityRequest(gpus=1_024, days=30, parameters=405_853_388_800)
    )
    assert named.answers == counted.answers


def test_where_no_model_is_said_the_usual_one_is_told() -> None:
    assert any(
        USUAL in line for line in answer(ReliabilityRequest(gpus=64, days=3)).assumed
    )
    known = ReliabilityRequest(gpus=64, days=3, stall_seconds=2.0)
    assert not any(USUAL in line for line in answer(known).assumed)


@pytest.mark.parametrize(
    "wrong", [{"gpus": 0}, {"days": 0}, {"rate": -1.0}, {"availability": 1.0}]
)
def test_what_cannot_be_is_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(SpecInvalid):
        ReliabilityRequest(**{"gpus": 8, "days": 1} | wrong)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "request_",
    [
        ReliabilityRequest(gpus=8, days=1, gpu="h1000"),
        ReliabilityRequest("llama-9", gpus=8, days=1),
    ],
)
def test_who_is_not_known_gets_the_nearest_name(request_: ReliabilityRequest) -> None:
    with pytest.raises(NotFound):
        answer(request_)


def test_a_run_on_less_than_a_node_holds_what_it_asks_for() -> None:
    small = ReliabilityRequest(gpus=2, days=1)
    assert (small.nodes, small.each, small.held_gpus) == (1, 2, 2)
    odd = ReliabilityRequest(gpus=12, days=1, node_gpus=8)
    assert (odd.nodes, odd.each, odd.held_gpus) == (2, 8, 16)
