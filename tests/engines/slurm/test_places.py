"""A whole cluster on a real Slurm that places by itself."""

from collections.abc import Iterator

import pytest

from tests.contracts.engines.slurm import OnSlurm, landlord
from tests.scenarios.house import until

pytestmark = pytest.mark.xdist_group("slurm-places")


@pytest.fixture(scope="module")
def on_slurm() -> Iterator[OnSlurm]:
    with landlord("places=engine") as made:
        yield made


@pytest.fixture
def full(on_slurm: OnSlurm) -> Iterator[list[str]]:
    """Somebody else has all of Slurm's nodes, until the batch jobs are cancelled."""
    slurm = on_slurm.slurm
    foreign = [slurm.submit("-w", node, "--exclusive") for node in on_slurm.nodes]
    slurm.until(lambda: len(slurm.jobs("-t", "running")) == 2, "their start")
    yield foreign
    slurm.run("scancel", *foreign)


def test_a_gang_begins_where_slurm_has_put_it_and_its_ranks_meet(
    on_slurm: OnSlurm,
) -> None:
    house = on_slurm.house
    run = 'echo $RANK of $WORLD_SIZE at $MASTER_ADDR; [ "$MASTER_PORT" -gt 0 ]'
    id = house.submit("gang", run, nodes=2, resources={"gpu": 2})
    job = house.until_over(id)
    assert (job.state, sorted(job.nodes)) == ("DONE", sorted(on_slurm.nodes))
    assert [house.logs(id, rank=rank).split()[:3] for rank in (0, 1)] == [
        ["0", "of", "2"],
        ["1", "of", "2"],
    ]
    (number,) = {row[0] for row in on_slurm.slurm.jobs() if f"-{id}-1" in row[1]}
    assert "ReqNodeList=(null)" in on_slurm.slurm.run("scontrol", "show", "job", number)


def test_what_waits_in_slurm_holds_nothing_says_why_and_begins_when_there_is_room(
    on_slurm: OnSlurm, full: list[str]
) -> None:
    house, slurm = on_slurm.house, on_slurm.slurm
    id = house.submit("patient", "echo here", resources={"gpu": 1})
    until(lambda: "the job waits in Slurm" in house.ok("why", id), "Slurm's reason")
    assert "one of its nodes" not in house.ok("why", id)
    assert house.job(id).state == "QUEUED"
    assert not house.job(id).nodes
    slurm.run("scancel", full[0])
    assert house.until_over(id).state == "DONE"


def test_one_that_waits_is_stopped_in_slurm_as_well(
    on_slurm: OnSlurm, full: list[str]
) -> None:
    house, slurm = on_slurm.house, on_slurm.slurm
    id = house.submit("unwanted", "echo here")
    until(lambda: slurm.jobs("-t", "pending"), "it waits in Slurm")
    house.ok("stop", id, "-y")
    until(lambda: slurm.jobs("-t", "pending") == [], "it is gone from Slurm")
    assert house.job(id).state == "CANCELLED"


def test_the_indices_of_an_array_are_one_array_of_slurms(on_slurm: OnSlurm) -> None:
    house, slurm = on_slurm.house, on_slurm.slurm
    of = house.submit(
        "many", "echo $CORRAL_ARRAY_INDEX", array="0-3%2", resources={"cpu": 1}
    )
    id = of.rpartition("_")[0]
    until(
        lambda: all(house.job(f"{id}_{at}").state == "DONE" for at in range(4)),
        "all are done",
    )
    said = [house.logs(f"{id}_{at}").strip() for at in range(4)]
    assert said == ["0", "1", "2", "3"]
    rows = slurm.run("squeue", "-h", "-t", "all", "-r", "-o", "%j|%F|%K").splitlines()
    mine = [row.split("|") for row in rows if f"-{id}-1-" in row]
    assert len({array for _, array, _ in mine}) == 1
    assert sorted(task for *_, task in mine) == ["0", "1", "2", "3"]


def test_what_slurm_starts_while_the_head_is_away_begins_when_it_is_back(
    on_slurm: OnSlurm, full: list[str]
) -> None:
    house, slurm = on_slurm.house, on_slurm.slurm
    id = house.submit("patient", "echo here", nodes=2, resources={"gpu": 2})
    until(lambda: slurm.jobs("-t", "pending"), "it waits in Slurm")
    house.kill_head()
    slurm.run("scancel", *full)
    slurm.until(lambda: not slurm.jobs("-t", "pending"), "its start, without a head")
    house.up()
    job = house.until_over(id)
    assert (job.state, job.attempt) == ("DONE", 1)
    assert house.logs(id, rank=1).strip() == "here"
    assert len([row for row in slurm.jobs() if f"-{id}-" in row[1]]) == 1
