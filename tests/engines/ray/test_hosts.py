"""Machines that join a cluster on Ray, and what becomes of their jobs when they are
lost.

Each is a network namespace. What befalls a job is judged by what its workers wrote.
"""

import signal
from collections.abc import Iterator

import pytest

from tests.engines.ray.hosts import (
    agent_of,
    everything_of,
    kill_part,
    part_of,
    ray_hosts,
    ray_of,
    words_of,
)
from tests.scenarios.house import House, until
from tests.scenarios.machines import Machines
from tests.scenarios.workers import Worker, parted_for, saves_of

pytestmark = pytest.mark.xdist_group("ray-hosts")


def test_a_machine_joins_a_cluster_on_ray_by_one_line_and_leaves_it() -> None:
    with ray_hosts("w1") as found:
        w1 = found["w1"]
        assert found.node("w1").address == w1.host.address
        for name in ("ray/token", "nodes/w1/token", "joined.json"):
            assert w1.root.joinpath(name).stat().st_mode & 0o77 == 0, name
        secret = (w1.root / "ray" / "token").read_text()
        assert part_of(w1, "raylet") is not None
        assert not any(secret in words_of(one) for one in ray_of(w1))
        worker = Worker(found)
        assert worker.begun() == ["1 begins on w1"]
        code, hint = w1.refused("leave", "-y")
        assert (code, "corral node drain w1" in hint) == ("conflict", True)
        agent = agent_of(found, "w1")
        assert agent is not None
        kill_part(w1, "raylet")
        found.until_node("w1", "alive")
        assert agent_of(found, "w1") == agent
        worker.moves_on()
        worker.end()
        assert worker.begun() == ["1 begins on w1"]
        before = ray_of(w1)
        until(lambda: not found.node("w1").jobs, "it holds nothing")
        w1.ok("leave", "-y")
        assert not any(one.lives for one in before)
        assert not (w1.root / "ray").exists()
        assert "w1" not in [one.id for one in found.call(lambda client: client.nodes())]


@pytest.fixture(scope="module")
def two() -> Iterator[Machines]:
    """Two machines with a GPU each, and a Ray that keeps in Redis what it knows."""
    with ray_hosts("w1", "w2", with_redis=True) as found:
        yield found


def settled(found: Machines) -> None:
    """Both machines are alive, and have an agent that this head hears."""
    for name in ("w1", "w2"):
        found.until_node(name, "alive")


BOTH = [("head", "w1"), ("w1", "head")]


@pytest.mark.soak
@pytest.mark.parametrize(
    "ways", [BOTH, BOTH[:1], BOTH[1:]], ids=["both", "from head", "to head"]
)
def test_a_machine_that_is_cut_off_for_five_seconds_keeps_its_job(
    two: Machines, ways: list[tuple[str, str]]
) -> None:
    settled(two)
    worker = Worker(two, constraints={"node": "w1"})
    parted_for(two, ways, 5.0)
    two.until_node("w1", "alive")
    worker.moves_on()
    worker.end()
    assert worker.begun() == ["1 begins on w1"]


@pytest.mark.soak
def test_a_machine_that_ray_took_for_dead_keeps_a_job_that_does_not_save(
    two: Machines,
) -> None:
    """After 4 to 6 s of silence Ray calls it dead, and its raylet ends: no proof of
    anything."""
    settled(two)
    worker = Worker(two, constraints={"node": "w1"})
    before = part_of(two["w1"], "raylet")
    parted_for(two, BOTH, 30.0)
    two.until_node("w1", "alive")
    worker.moves_on()
    until(
        lambda: part_of(two["w1"], "raylet") not in (None, before),
        "its Ray has joined anew",
    )
    worker.moves_on()
    worker.end()
    assert worker.begun() == ["1 begins on w1"]


@pytest.mark.soak
def test_a_job_that_saves_leaves_a_machine_that_is_cut_off_and_runs_once(
    two: Machines,
) -> None:
    settled(two)
    worker = Worker(two, checkpoint={"path": str(saves_of(two))}, disconnect="replace")
    where, other = places(worker)
    with two.hosts.parted("head", where):
        until(lambda: len(worker.begun()) == 2, "it begins elsewhere")
    two.until_node(where, "alive")
    worker.until_gone(1)
    worker.moves_on()
    worker.end()
    assert worker.begun() == [f"1 begins on {where}", f"2 begins on {other}"]


@pytest.mark.soak
def test_a_job_that_saves_leaves_a_machine_that_is_frozen_and_runs_once(
    two: Machines,
) -> None:
    settled(two)
    worker = Worker(two, checkpoint={"path": str(saves_of(two))}, disconnect="replace")
    where, other = places(worker)
    frozen = everything_of(two, where)
    for one in frozen:
        one.signal(signal.SIGSTOP)
    try:
        until(lambda: len(worker.begun()) == 2, "it begins elsewhere")
    finally:
        for one in frozen:
            one.signal(signal.SIGCONT)
    two.until_node(where, "alive")
    worker.until_gone(1)
    worker.moves_on()
    worker.end()
    assert worker.begun() == [f"1 begins on {where}", f"2 begins on {other}"]


@pytest.mark.soak
def test_a_gcs_that_was_killed_comes_back_with_what_redis_has_and_no_job_notices(
    two: Machines,
) -> None:
    settled(two)
    worker = Worker(two, nodes=2)
    raylets = [part_of(two[name], "raylet") for name in ("w1", "w2")]
    kill_part(two.head, "gcs_server")
    after = two.submit("after", "true", resources={"cpu": 0.1})
    two.until_state(after, "DONE")
    settled(two)
    worker.moves_on()
    worker.end()
    assert sorted(worker.begun()) == ["1 begins on w1", "1 begins on w2"]
    assert [part_of(two[name], "raylet") for name in ("w1", "w2")] == raylets


@pytest.mark.soak
def test_a_head_that_was_killed_finds_its_machines_and_their_jobs(
    two: Machines,
) -> None:
    settled(two)
    worker = Worker(two, nodes=2)
    House(two.head.root).kill_head()
    two.head.ok("up")
    settled(two)
    assert two.job(worker.job).attempt == 1
    worker.moves_on()
    worker.end()
    assert sorted(worker.begun()) == ["1 begins on w1", "1 begins on w2"]


@pytest.mark.soak
def test_a_ray_that_forgot_its_nodes_is_joined_again_by_them() -> None:
    """Without Redis the death of Ray's head is that of its Ray; jobs run on through
    it."""
    with ray_hosts("w1") as found:
        worker = Worker(found)
        raylet = part_of(found["w1"], "raylet")
        for one in ray_of(found.head):
            one.signal(signal.SIGKILL)
        until(
            lambda: part_of(found["w1"], "raylet") not in (None, raylet),
            "it joined again",
        )
        found.until_node("w1", "alive")
        worker.moves_on()
        worker.end()
        assert worker.begun() == ["1 begins on w1"]
        second = Worker(found)
        second.end()


def places(worker: Worker) -> tuple[str, str]:
    """Where it runs, and the other machine."""
    where = worker.begun()[0].split()[-1]
    return where, {"w1": "w2", "w2": "w1"}[where]
