"""No job runs twice at once, and none is lost, whatever dies of a cluster on Ray."""

import time
from types import SimpleNamespace
from typing import Any

import pytest

from tests.engines.ray.history import NODES, History, Line, Told, breaches
from tests.ray_cluster import ray_house

SECONDS = 60.0


def told(*lines: tuple[int, int, str, float], code: int = 0, **job: Any) -> Told:
    said: Any = SimpleNamespace(**{"exit_code": 0, "attempt": 1, "nodes": ["r1"]} | job)
    read = [Line(attempt=a, rank=r, what=what, at=at) for a, r, what, at in lines]
    return Told(id="j1", code=code, job=said, lines=read)


WHOLE = [(1, 0, "begins", 1.0), (1, 0, "ends", 2.0)]


def test_the_judge_sees_what_must_not_be() -> None:
    assert breaches([told(*WHOLE)]) == []
    again = [(2, 0, "begins", 3.0), (2, 0, "ends", 4.0)]
    assert breaches([told(*WHOLE, *again, attempt=2)]) == []
    assert breaches([told(*WHOLE, (1, 0, "begins", 3.0))]) == [
        "j1: rank (1, 0) began 2 times"
    ]
    at_once = [(2, 0, "begins", 1.5), (2, 0, "ends", 4.0)]
    assert (
        "while an earlier one lived" in breaches([told(*WHOLE, *at_once, attempt=2)])[0]
    )
    assert "by its own" in breaches([told(*WHOLE, code=7)])[0]
    assert "alone have ended" in breaches([told(WHOLE[0])])[0]


@pytest.mark.soak
def test_a_minute_of_random_deaths_runs_no_attempt_twice_and_loses_no_job() -> None:
    with ray_house("--set", "num_gpus=0", nodes=NODES) as ray:
        history = History(ray, seed=time.time_ns() % 10_000)
        found = history.run(SECONDS)
        assert not breaches(found), (history.seed, history.faults)
        assert found
        assert sum(history.faults.values()) >= 3, history.faults
