"""A whole cluster on a real Slurm: what somebody submits becomes batch jobs, and comes
back."""

import json
from collections.abc import Iterator

import pytest

from tests.contracts.engines.slurm import OnSlurm, landlord
from tests.scenarios.house import until

pytestmark = pytest.mark.xdist_group("slurm-cluster")


@pytest.fixture(scope="module")
def on_slurm() -> Iterator[OnSlurm]:
    with landlord() as made:
        yield made


def test_a_gang_is_one_batch_job_whose_ranks_meet_with_the_gpus_that_slurm_granted(
    on_slurm: OnSlurm,
) -> None:
    house = on_slurm.house
    meet = on_slurm.shared / "met"
    run = (
        f"touch {meet}-$RANK; while [ ! -e {meet}-$((1 - RANK)) ]; do sleep 0.1; done; "
        "echo $MASTER_ADDR $WORLD_SIZE $CUDA_VISIBLE_DEVICES; touch "
        f"{meet}-said-$RANK; "
        f"[ $RANK = 1 ] || exit 0; while [ ! -e {meet}-said-0 ]; do sleep 0.1; done; exit 7"
    )
    id = house.submit("gang", run, nodes=2, resources={"gpu": 2, "memory": "64MB"})
    job = house.until_over(id)
    assert (job.state, job.exit_code, sorted(job.nodes)) == (
        "FAILED",
        7,
        sorted(on_slurm.nodes),
    )
    said = [house.logs(id, rank=rank).split() for rank in (0, 1)]
    assert said == [["127.77.0.1", "2", "0,1"]] * 2
    assert job.attempt == 1
    until(
        lambda: on_slurm.slurm.jobs("-t", "pending,running,completing") == [],
        "it is over",
    )
    assert [job[2] for job in on_slurm.slurm.jobs()] == ["COMPLETED"]


def test_what_somebody_cancels_in_slurm_is_tried_again_with_a_receipt(
    on_slurm: OnSlurm,
) -> None:
    house, slurm = on_slurm.house, on_slurm.slurm
    run = 'if [ "$CORRAL_ATTEMPT" = 1 ]; then sleep 3600; fi'
    id = house.submit("cancelled", run, grace="2s")
    house.until_state(id, "RUNNING")
    (running,) = [job[0] for job in slurm.jobs("-t", "running")]
    slurm.run("scancel", running)
    job = house.until_over(id)
    assert (job.state, job.attempt) == ("DONE", 2)
    assert [(one.kind, one.cause, one.culprit) for one in job.receipts] == [
        ("failure", "infra", "Slurm")
    ]


def test_one_that_slurm_preempts_goes_on_as_another_attempt_and_its_receipt_says_so(
    on_slurm: OnSlurm,
) -> None:
    house, slurm, node = on_slurm.house, on_slurm.slurm, on_slurm.nodes[0]
    run = 'if [ "$CORRAL_ATTEMPT" = 1 ]; then sleep 3600; fi'
    id = house.submit(
        "preempted", run, resources={"gpu": 2}, constraints={"node": node}
    )
    house.until_state(id, "RUNNING")
    urgent = slurm.submit("-p", "urgent", "-w", node, "--gres=gpu:2")
    until(lambda: house.job(id).receipts, "its receipt")
    slurm.run("scancel", urgent)
    job = house.until_over(id)
    assert (job.state, job.attempt) == ("DONE", 2)
    (receipt,) = job.receipts
    assert receipt.culprit == "Slurm"
    assert receipt.text.startswith(
        "Slurm: Slurm preempted the batch job for another job; "
    )


def test_what_others_hold_of_a_node_is_not_offered_while_they_do(
    on_slurm: OnSlurm,
) -> None:
    house, slurm, node = on_slurm.house, on_slurm.slurm, on_slurm.nodes[0]
    foreign = slurm.submit("-w", node, "--gres=gpu:2")

    def free() -> int:
        (one,) = [
            it
            for it in json.loads(house.ok("status", "--json"))["nodes"]
            if it["id"] == node
        ]
        return int(one["gpus"]["free"])

    until(lambda: free() == 0, "their GPUs are not offered")
    slurm.run("scancel", foreign)
    until(lambda: free() == 2, "they are offered again")
