"""The condition of a service follows from its replicas and their ends."""

from dataclasses import replace
from typing import Any

import pytest

from corral.domain.role_rule import PrefillGroup
from corral.domain.service import ServiceState
from corral.domain.service_condition import (
    condition_of,
    failed_starts_text,
    turned_back_text,
)
from tests.control.roles import DECODE, PREFILL, apart, replica
from tests.control.services import row, service

END = "chat_2 ended: exit code 3"


@pytest.mark.parametrize(
    ("more", "ready", "condition"),
    [
        ({"wanted": 2}, 2, "READY"),
        ({"wanted": 2}, 1, "PARTIAL"),
        ({"wanted": 2}, 0, "STARTING"),
        ({"wanted": 0}, 0, "IDLE"),
        ({"wanted": 2, "fruitless": 1}, 0, "FAILING"),
        ({"wanted": 2, "fruitless": 1}, 1, "PARTIAL"),
        ({"wanted": 2, "fruitless": 1}, 2, "READY"),
        ({"wanted": 2, "trial": 2, "trial_fruitless": 2}, 2, "READY"),
        ({"wanted": 2, "state": ServiceState.STOPPING}, 2, "STOPPING"),
        ({"wanted": 0, "state": ServiceState.STOPPED}, 0, "STOPPED"),
    ],
)
def test_the_condition_is_that_of_the_replicas_that_are_wanted(
    more: dict[str, Any], ready: int, condition: str
) -> None:
    ready_rows = [row(number) for number in range(1, ready + 1)]
    starting = row(9, ready_at=None)
    assert condition_of(service(*ready_rows, starting, **more)) == condition


@pytest.mark.parametrize(
    ("prefill", "decode", "condition"),
    [(1, 1, "READY"), (0, 1, "PARTIAL"), (1, 0, "STARTING"), (0, 0, "STARTING")],
)
def test_a_service_with_roles_is_ready_with_both_groups(
    prefill: int, decode: int, condition: str
) -> None:
    rows = [replica(1, PREFILL)] * prefill + [replica(2, DECODE)] * decode
    assert condition_of(apart(*rows)) == condition
    failing = apart(*rows, fruitless=1)
    if not decode:
        assert condition_of(failing) == "FAILING"


def test_a_failed_start_of_a_prefill_replica_is_reported() -> None:
    failing = replace(
        apart(), prefill=PrefillGroup(wanted=1, fruitless=2, last_end=END)
    )
    assert "2 replicas of revision 1" in failed_starts_text(failing)
    assert END in failed_starts_text(failing)


def test_a_failed_start_names_its_revision_and_its_end() -> None:
    assert failed_starts_text(service(last_end=END)) == ""
    assert failed_starts_text(service(fruitless=2, last_end=END)) == (
        f"2 replicas of revision 1 ended before being ready for 60 s; the last one: {END}"
    )
    on_trial = service(trial=2, trial_fruitless=1, last_end=END)
    assert "1 replica of revision 2 ended" in failed_starts_text(on_trial)


@pytest.mark.parametrize(
    ("more", "is_told"),
    [
        ({}, True),
        ({"trial": 3}, False),  # a newer one is tried
        ({"current": 3}, False),
        ({"turned_back": None}, False),
    ],
)
def test_a_revision_that_did_not_pass_is_the_problem_until_a_newer_one_comes(
    more: dict[str, Any], is_told: bool
) -> None:
    values: dict[str, Any] = {"turned_back": 2, "turned_back_reason": END} | more
    text = turned_back_text(service(**values))
    assert text == (f"revision 2 did not pass its trial: {END}" if is_told else "")
