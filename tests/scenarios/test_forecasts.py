"""A real full cluster: what a waiting job is told of its start holds, and is on the
record that the next one is told of."""

import re
import time
from collections.abc import Iterator
from typing import Any

import pytest

from corral.wire import api
from tests.scenarios.house import House, house, until, wait_in_shell

pytestmark = pytest.mark.xdist_group("forecasts")

LIMIT_SECONDS = 60.0


@pytest.fixture(scope="module")
def here() -> Iterator[House]:
    with house("--nodes", "2", "--gpus", "1") as made:
        yield made


def spec(name: str, run: str = "true", **more: Any) -> dict[str, Any]:
    return {"name": name, "run": run, "resources": {"gpu": 1, "cpu": 0.1}, **more}


def holds(here: House, name: str, limit: str) -> str:
    """A job on one GPU that ends when its file is there; it runs."""
    with here.client() as client:
        run = wait_in_shell(here.shared / f"{name}.done")
        job = client.submit(spec(name, run, max_duration=limit))[0].id
    here.until_state(job, "RUNNING")
    return job


def finish(here: House, name: str) -> None:
    (here.shared / f"{name}.done").touch()


def plan(here: House, one: dict[str, Any]) -> api.PlannedJob:
    with here.client() as client:
        return client.plan(one)[0]


def told(here: House, job: str) -> api.StartForecastView:
    """The forecast of a waiting job."""
    found: list[api.StartForecastView | None] = []

    def asked() -> bool:
        with here.client() as client:
            found.append(client.why(job).forecast)
        return found[-1] is not None

    until(asked, f"{job} is told when it starts")
    assert found[-1] is not None
    return found[-1]


def test_a_job_that_fits_starts_now_and_is_told_no_interval(here: House) -> None:
    planned = plan(here, spec("fits"))
    assert planned.starts_now
    assert planned.forecast is None


def test_a_waiting_job_starts_within_what_it_was_told_and_that_is_on_the_record(
    here: House,
) -> None:
    holds(here, "a", f"{LIMIT_SECONDS:.0f}s")
    said = here.ok(
        "run",
        "--dry-run",
        "--no-workdir",
        "--nodes",
        "2",
        "--gpus",
        "1",
        "-n",
        "both",
        "--",
        "true",
    )
    none = (
        r"^starts +(in|within) .* \(no earlier forecasts to compare; based on the time "
        r"limits of jobs\)$"
    )
    assert re.search(none, said, re.M), said
    with here.client() as client:
        both = client.submit(spec("both", nodes=2))[0].id
    found, asked_at = told(here, both), time.time()
    assert found.starts.high_seconds is not None
    assert 0 < found.starts.low_seconds < found.starts.high_seconds <= LIMIT_SECONDS
    assert found.ends.low_seconds >= found.starts.low_seconds
    lowest = asked_at + found.starts.low_seconds + 1.0
    until(lambda: time.time() >= lowest, "the first moment that it was told is past")
    finish(here, "a")
    done = here.until_over(both)
    waited = done.attempts[0].placed_at - asked_at
    assert found.starts.low_seconds <= waited <= found.starts.high_seconds

    def on_record() -> bool:
        """As a job is told that would have to wait now."""
        forecast = plan(here, spec("next", nodes=2)).forecast
        return forecast is not None and forecast.told == 1

    c = holds(here, "c", "1h")
    until(on_record, "what came of it is on the record")
    forecast = plan(here, spec("next", nodes=2)).forecast
    assert forecast is not None
    assert forecast.text.endswith(
        "(a guess: only 1 earlier forecast can be compared, and it was right)"
    )
    finish(here, "c")
    here.until_over(c)


def test_fewer_nodes_are_suggested_with_when_that_would_start(here: House) -> None:
    holds(here, "long", "2h")
    with here.client() as client:
        two = client.submit(spec("two", nodes=2))[0].id
    found = told(here, two)
    assert [one.change for one in found.instead] == ["with 1 node instead of 2"]
    said = here.ok("why", "two")
    starts = r"^  it starts (in|within) .* \((80 %|no earlier forecasts|a guess)"
    assert re.search(starts, said, re.M), said
    assert re.search(r"^  with 1 node instead of 2 it starts now$", said, re.M), said
    finish(here, "long")
    assert here.until_over(two).state == "DONE"
