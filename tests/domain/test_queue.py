"""A tree of queues is one, or says what keeps it from being one."""

from dataclasses import replace
from math import inf, nan
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from corral.domain.ids import QueueName
from corral.domain.queue import ANY_TYPE, Budget, Queue
from corral.domain.queue_changes import begun, with_queues
from corral.domain.queue_faults import faults
from corral.domain.queue_tree import QueueTree, whole_tree
from corral.domain.relocation import RelocationRule
from tests.domain.faulty_queues import FAULTY_QUEUES, queue


@pytest.mark.parametrize("number", [nan, inf, -1.0])
@pytest.mark.parametrize(
    "field",
    [
        "half_life_seconds",
        "min_runtime_seconds",
        "rack_locality_delay_seconds",
        "pod_locality_delay_seconds",
    ],
)
def test_no_rule_of_a_tree_is_without_end_or_less_than_nothing(
    field: str, number: float
) -> None:
    rule: dict[str, Any] = {field: number}
    with pytest.raises(ValueError, match="finite"):
        QueueTree(**rule)


@pytest.mark.parametrize("number", [nan, inf, -1.0])
def test_the_budget_of_relocations_ends(number: float) -> None:
    with pytest.raises(ValueError, match="at least 0 GPU-hours and finite"):
        RelocationRule(gpu_hours=number)


def test_there_is_always_a_queue_that_is_called_default() -> None:
    assert [one.name for one in QueueTree().queues] == ["default"]
    assert [one.name for one in whole_tree([queue("a")]).queues] == ["default", "a"]
    with pytest.raises(ValueError, match="default"):
        QueueTree(queues=(queue("a"),))


@pytest.mark.parametrize(("queues", "field", "text"), FAULTY_QUEUES)
def test_what_is_wrong_is_said_of_the_queue_that_it_is_wrong_with(
    queues: list[Queue], field: str, text: str
) -> None:
    found = list(faults(queues))
    assert field in {one.field for one in found}
    assert any(text in one.text for one in found)
    with pytest.raises(ValueError, match=r"^queue "):
        whole_tree(queues)


def test_a_child_may_be_given_types_out_of_its_parents_gpus_of_any_type() -> None:
    parent = Queue(name=QueueName("p"), nominal=((ANY_TYPE, 4000), ("h100", 2000)))
    child = Queue(name=QueueName("c"), parent=parent.name, nominal=(("h100", 6000),))
    assert not list(faults([parent, child]))
    assert list(faults([parent, replace(child, nominal=(("h100", 7000),))]))
    assert list(faults([parent, replace(child, nominal=(("a100", 5000),))]))


def test_a_path_leads_from_the_top_down_and_a_queue_that_is_gone_has_one_too() -> None:
    tree = whole_tree([queue("a"), queue("b", "a"), queue("c", "b")])
    assert [one.name for one in tree.path(QueueName("c"))] == ["a", "b", "c"]
    assert [one.name for one in tree.path(QueueName("gone"))] == ["gone"]
    assert [(depth, one.name) for depth, one in tree.walk()] == [
        (0, "default"), (0, "a"), (1, "b"), (2, "c"),
    ]  # fmt: skip


def test_one_queue_is_changed_and_the_others_stay() -> None:
    tree = with_queues(
        whole_tree([queue("a"), queue("b")]), [queue("b", gpus=3), queue("c")]
    )
    assert [one.name for one in tree.queues] == ["default", "a", "b", "c"]
    assert tree.queue(QueueName("b")).nominal_millis == 3000


def test_a_budget_counts_from_when_it_was_set_and_not_anew_when_it_stays() -> None:
    budget = Budget(gpu_hours=10.0, period_seconds=3600.0)
    first = begun(whole_tree([queue("a", budget=budget)]), QueueTree(), 50.0)
    again = begun(whole_tree([queue("a", gpus=3, budget=budget)]), first, 90.0)
    other = begun(
        whole_tree([queue("a", budget=replace(budget, gpu_hours=11.0))]), first, 90.0
    )
    since = [tree.queue(QueueName("a")).budget.since for tree in (first, again, other)]  # type: ignore[union-attr]
    assert since == [50.0, 50.0, 90.0]


@given(st.floats(0, 1e9), st.floats(60, 1e7), st.floats(0, 1e9))
def test_a_moment_lies_in_just_one_period(
    since: float, period: float, after: float
) -> None:
    budget = Budget(gpu_hours=1.0, period_seconds=period, since=since)
    start = budget.period_start(since + after)
    assert since <= start <= since + after
    assert since + after - start <= period * (1 + 1e-9)


def test_a_name_that_several_queues_have_is_said_once() -> None:
    found = list(faults([queue("a"), queue("a"), queue("a")]))
    assert [one.text for one in found] == ["3 queues have this name"]
