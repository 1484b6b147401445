"""What a line of a listing says: how long a job has run, and when it ends."""

import pytest

from corral.cli.job_row import time_of, where_or_why
from corral.wire.api import JobView, ProgressView


def job(**fields: object) -> JobView:
    named = {
        "submitted_at": 100.0,
        "started_at": 200.0,
        "ended_at": None,
        "ran_seconds": 0.0,
    }
    return JobView.model_construct(**(named | {"running_since": None} | fields))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("fields", "seconds"),
    [
        ({"started_at": None}, 900.0),  # it waits since it was submitted
        ({"running_since": 200.0}, 800.0),
        ({"running_since": 900.0, "ran_seconds": 50.0}, 150.0),  # its second attempt
        ({"ran_seconds": 50.0}, 50.0),  # it waits again
        ({"ended_at": 990.0, "ran_seconds": 50.0}, 50.0),
        ({"ended_at": 990.0, "ran_seconds": None}, 790.0),  # as an older head says it
    ],
)
def test_time_is_what_ran(fields: dict[str, object], seconds: float) -> None:
    assert time_of(job(**fields), 1000.0) == seconds


def test_a_job_with_a_training_loop_says_when_it_ends() -> None:
    beat = ProgressView.model_construct(step=20, until=100, left_seconds=95.0)
    running = job(state="RUNNING", nodes=["n1"], progress=beat)
    assert where_or_why(running) == "n1 step 20/100, ends in 1 to 2 min"
