"""What slurmrestd says and is told: rules alone; the whole way is in test_driver.py."""

import pytest

from corral.domain.errors import Unsupported
from corral.engines.slurm.slurmrestd import until_of
from corral.engines.slurm.slurmrestd_json import (
    body_of,
    job_rows,
    node_of_row,
    tasks_of,
)


def test_the_lines_of_a_batch_script_become_what_slurmrestd_calls_them() -> None:
    lines = (
        "--job-name=corral-c0ffee42-j17-1", "--output='/it'\"'\"'s/slurm.log'", "--no-requeue",
        "--nodelist=fa1,fa2", "--nodes=2", "--cpus-per-task=4", "--mem=1280M", "--exclusive",
        "--time=90", "--array=0,3%2",
    )  # fmt: skip
    script = "\n".join(
        ["#!/bin/bash", *(f"#SBATCH {line}" for line in lines), "", "true", ""]
    )
    body = body_of(script, {"PATH": "/bin"})
    assert body["script"] == script
    assert body["job"] == {
        "environment": {"PATH": "/bin"},
        "name": "corral-c0ffee42-j17-1",
        "standard_output": "/it's/slurm.log",
        "no_requeue": True,
        "nodelist": "fa1,fa2",
        "nodes": [2, 2],
        "cpus_per_task": 4,
        "memory_per_node": 1280,
        "exclusive": "exclusive",
        "time_limit": 90,
        "array": "0,3%2",
    }


def test_an_option_that_slurmrestd_has_no_word_for_is_refused_by_its_name() -> None:
    with pytest.raises(Unsupported, match="--switches=1"):
        body_of("#!/bin/bash\n#SBATCH --switches=1\n", {})


@pytest.mark.parametrize(
    ("text", "tasks"),
    [("", []), ("0,2,5%1", [0, 2, 5]), ("2-4", [2, 3, 4]), ("0-6:3", [0, 3, 6])],
)
def test_the_tasks_of_an_array_that_waits_are_listed(
    text: str, tasks: list[int]
) -> None:
    assert tasks_of(text) == tasks


def test_a_list_of_tasks_that_slurm_has_cut_short_is_said_to_be_so() -> None:
    with pytest.raises(ValueError, match="SLURM_BITSTR_LEN"):
        tasks_of("1,3,5,...")


def test_what_a_newer_slurmrestd_may_say_otherwise_is_no_node_and_no_job() -> None:
    with pytest.raises(ValueError, match="node"):
        node_of_row({"name": "fa1", "state": ["IDLE"]})
    with pytest.raises(ValueError, match="job"):
        list(job_rows({"name": "corral-c0ffee42-j17-1", "job_state": ["RUNNING"]}))
    assert list(job_rows({"name": "somebody's"})) == []


def test_a_token_tells_its_own_end_and_what_is_none_says_so() -> None:
    assert (
        until_of("e30.eyJleHAiOjE3OTUzMzk5OTl9.x")
        == " (valid until 2026-11-22 09:33:19 UTC)"
    )
    assert until_of("rubbish") == " (not a valid token)"
