"""The Ray engine on a real Ray of two nodes."""

import os
import signal
from collections.abc import Iterator

import pytest

from corral.engines.local.processes import LocalProcess
from tests.ray_cluster import RayHouse, ray_house
from tests.scenarios.house import until, wait_in_shell


@pytest.fixture(scope="module")
def ray() -> Iterator[RayHouse]:
    with ray_house(nodes=("r2",)) as made:
        yield made


def test_a_gang_runs_on_nodes_of_ray_and_sees_nothing_of_ray(ray: RayHouse) -> None:
    job = ray.house.submit(
        "gang",
        "echo $CORRAL_NODE:$CUDA_VISIBLE_DEVICES; ! env | grep -E '^RAY_'; sleep $((2 * RANK));"
        " exit $((3 * RANK))",  # the first rank has printed when the second one fails
        nodes=2,
        resources={"gpu": 2},
        retry={"user": 0},
    )
    over = ray.house.until_over(job)
    said = sorted(ray.house.logs(job).split())
    assert said == sorted([f"{ray.first}:0,1", "r2:0,1"])
    assert (over.state, over.exit_code) == ("FAILED", 3)


def test_an_actor_that_dies_is_started_again_and_finds_its_agent(ray: RayHouse) -> None:
    agent, actor = ray.agent("r2"), ray.actor("r2")
    assert agent is not None
    gate = ray.house.root.parent / "gate-actor"
    job = ray.house.submit("waits", wait_in_shell(gate), nodes=2, resources={"gpu": 2})
    ray.house.until_state(job, "RUNNING")
    os.kill(actor, signal.SIGKILL)
    until(lambda: LocalProcess.find(actor) is None, "the actor is gone")
    gate.touch()
    assert ray.house.until_over(job).attempt == 1
    assert ray.agent("r2") == agent
    os.kill(agent.pid, signal.SIGKILL)  # of whom the new actor is not the parent
    until(
        lambda: ray.agent("r2") not in (None, agent),
        "the new actor starts another agent",
    )
    ray.until_alive("r2")


def test_a_killed_head_finds_its_nodes_and_what_they_run(ray: RayHouse) -> None:
    gate, agent = ray.house.root.parent / "gate-head", ray.agent("r2")
    job = ray.house.submit(
        "outlives", wait_in_shell(gate), nodes=2, resources={"gpu": 1}
    )
    ray.house.until_state(job, "RUNNING")
    ray.house.kill_head()
    gate.touch()
    ray.house.up()
    over = ray.house.until_over(job)
    assert (over.state, over.attempt) == ("DONE", 1)
    assert ray.agent("r2") == agent


def test_a_node_of_which_nothing_lives_is_proven_dead_and_its_job_goes_elsewhere(
    ray: RayHouse,
) -> None:
    gate = ray.house.root.parent / "gate-node"
    job = ray.house.submit(
        "moves", wait_in_shell(gate), resources={"gpu": 1}, constraints={"node": "r2"}
    )
    ray.house.until_state(job, "RUNNING")
    ray.kill_node("r2")
    until(lambda: ray.state_of("r2") == "dead", "r2 is dead")
    assert "reports that no process of node r2 is left" in ray.house.node("r2").why
    until(lambda: ray.house.job(job).state != "RUNNING", "its job does not run")
    ray.join("r2")
    gate.touch()
    over = ray.house.until_over(job)
    assert (over.state, over.attempt) == ("DONE", 2)


def test_a_program_of_ray_and_a_job_never_have_the_same_gpu(ray: RayHouse) -> None:
    gate = ray.house.root.parent / "gate-gpus"
    until(lambda: ray.free_gpus() == 4, "all GPUs are free")
    job = ray.house.submit("three", wait_in_shell(gate), nodes=1, resources={"gpu": 1})
    ray.house.until_state(job, "RUNNING")
    with ray.program(gpus=2) as program:  # fits on the other node alone
        until(lambda: ray.free_gpus() == 1, "the program has two")
        late = ray.house.submit("late", "true", nodes=2, resources={"gpu": 2})
        gate.touch()
        ray.house.until_over(job)
        assert ray.house.job(late).state == "QUEUED"
        assert program.indices() == {0, 1}
    assert ray.house.until_over(late).state == "DONE"


def test_the_end_of_ray_on_a_node_is_not_the_end_of_what_runs_there(
    ray: RayHouse,
) -> None:
    gate = ray.house.root.parent / "gate-raylet"
    there = {"resources": {"gpu": 1}, "constraints": {"node": "r2"}}
    until(lambda: ray.free_gpus() == 4, "all GPUs are free")
    job = ray.house.submit("stays", wait_in_shell(gate), **there)
    ray.house.until_state(job, "RUNNING")
    agent = ray.agent("r2")
    ray.kill_ray("r2")
    ray.join("r2")
    gate.touch()
    over = ray.house.until_over(job)
    assert (over.state, over.attempt) == ("DONE", 1)
    assert ray.agent("r2") == agent
