"""A gang of which one rank sleeps for ever starts again by itself and finishes; the rank
is named while it hangs, and afterwards. All processes are real."""

from collections.abc import Iterator

import pytest

from tests.agent.gang_program import write_gang_program
from tests.scenarios.house import House, house, until

pytestmark = pytest.mark.xdist_group("hangs")
# Rank 2 hangs in the step after 20, in its first attempt.
TRAIN = """
import os, time
from torch.distributed.distributed_c10d import all_reduce, rank
from torch.optim.optimizer import Optimizer
def load(step):
    time.sleep(0.05)
    if rank == 2 and step == 20 and os.environ["CORRAL_ATTEMPT"] == "1":
        time.sleep(1e6)
optimizer = Optimizer()
for step in range(30):
    load(step)
    all_reduce()
    optimizer.step()
"""


@pytest.fixture(scope="module")
def here() -> Iterator[House]:
    """A cluster with two such gangs, which hang at the same time."""
    with house("--nodes", "2", "--gpus", "4") as made:
        program = write_gang_program(made.shared / "program")
        program.write_text(TRAIN)
        for act in ("restart", "alert"):
            gang = made.shared / act
            made.submit(
                act,
                f"export GANG={gang}/$CORRAL_ATTEMPT && mkdir -p $GANG && "
                f"exec python3 {program}",
                nodes=2,
                per="gpu",
                resources={"gpu": 2, "cpu": 0.1},
                watch={"hang": "5s", "act": act},
                grace="2s",
            )
        yield made


def event_texts(here: House, job: str) -> dict[str, str]:
    """The texts of the job's events, by kind."""
    found = here.answer("events", job)["events"]
    return {event["kind"]: event["text"] for event in found}


def explained(here: House, job: str) -> str:
    return here.ok("why", job).replace("\n", " ")


def test_a_hung_job_starts_again_by_itself_and_its_rank_is_named(here: House) -> None:
    until(lambda: here.job("restart").attempt == 2, "it has begun again")
    text = explained(here, "restart")
    node = here.job("restart").attempts[0].nodes[1]
    assert "attempt 1 hung and was ended: no step for" in text
    assert f"after step 20: rank 2 on {node} stands at train.py:8 in load" in text
    job = here.until_over("restart")
    assert (job.state, job.attempt) == ("DONE", 2)
    assert (job.infra_retries, job.user_retries) == (1, 0)
    first = job.attempts[0]
    assert (first.failure, first.cause) == ("hang", "infra")
    assert first.culprit == f"rank 2 on {node}"
    assert first.hang is not None
    assert len(first.hang.places) == 2
    event = event_texts(here, "restart")["hung"]
    assert f"rank 2 on {node} is stuck; 3 other ranks wait for it" in event


def test_a_hang_that_is_only_told_lasts_until_the_job_is_stopped(here: House) -> None:
    until(lambda: "hung" in event_texts(here, "alert"), "it hangs")
    job = here.job("alert")
    text = explained(here, "alert")
    assert "alert is RUNNING: no step for" in text
    assert f"rank 2 on {job.nodes[1]} stands at train.py:8 in load; 3 other" in text
    assert "compute" not in text
    assert (job.attempt, job.reason_code) == (1, "Hang")
    assert f"job_hung:{job.id}:1" in str(here.answer("alert", "ls"))
    here.ok("stop", job.id, "-y")
    assert here.until_over(job.id).state == "CANCELLED"
