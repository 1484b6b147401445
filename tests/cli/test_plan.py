"""Where the plan of a submission is told."""

import pytest

from corral.cli.plan import show_plan
from corral.client.spec import Wished
from corral.wire import api

PLANNED = api.PlannedJob(
    name="train",
    starts_now=False,
    shape=api.Shape(
        nodes=1, gpus_per_node=1, gpu_type=None, cpus_per_node=0, memory_bytes_per_node=0
    ),
    seats=[],
    ranks=1,
    environment={"RANK": "0"},
    reason="it waits for other jobs first",
    code="Dependency",
    suggestions=[],
)
NOTHING = Wished(values=(), paths=())


def test_the_plan_of_a_job_that_is_followed_leaves_stdout_to_its_ranks(
    capsys: pytest.CaptureFixture[str],
) -> None:
    show_plan([PLANNED, PLANNED], NOTHING, whole=False)
    told = capsys.readouterr()
    assert told.out == ""
    assert told.err.count("train") == 2


def test_a_dry_run_answers_on_stdout_with_the_environment(
    capsys: pytest.CaptureFixture[str],
) -> None:
    show_plan([PLANNED], NOTHING, whole=True)
    told = capsys.readouterr()
    assert "RANK=0" in told.out
    assert told.err == ""
