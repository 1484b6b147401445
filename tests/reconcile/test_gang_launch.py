"""What the nodes of a gang get: addresses and an id for experiment trackers."""

from dataclasses import replace

import pytest

from corral.domain.desired_state import Launch
from corral.domain.ids import JobId
from corral.domain.job import JobSpec
from corral.reconcile.desired_state import launch_of
from tests.worlds import Cluster, gang, node


def launches(cluster: Cluster, id: JobId) -> list[Launch]:
    world = cluster.world
    job, attempt = world.jobs[id], world.attempts[id]
    return [launch_of(world, job, attempt, seat.node) for seat in attempt.seats]


def addresses(*of_nodes: str, spec: JobSpec | None = None) -> tuple[str, ...]:
    """The addresses of a gang on nodes with these addresses."""
    nodes = [node(f"n{number}") for number in range(1, len(of_nodes) + 1)]
    cluster = Cluster(*nodes)
    id = cluster.submit(spec or gang(nodes=len(nodes), gpus=2))
    cluster.tick()
    by_id = dict(cluster.world.nodes)
    for seat, address in zip(cluster.world.attempts[id].seats, of_nodes, strict=True):
        by_id[seat.node] = replace(by_id[seat.node], address=address)
    cluster.world = replace(cluster.world, nodes=by_id)
    found = {launch.nodes for launch in launches(cluster, id)}
    (same,) = found
    return same


@pytest.mark.parametrize("shared", ["127.0.0.1", "10.0.0.7"])
def test_nodes_of_one_machine_have_an_address_each(shared: str) -> None:
    of_gang = addresses(shared, shared, shared)
    assert of_gang == ("127.77.0.1", "127.77.0.2", "127.77.0.3")


def test_nodes_of_several_machines_and_a_single_node_keep_their_addresses() -> None:
    assert addresses("10.0.0.7", "10.0.0.8") == ("10.0.0.7", "10.0.0.8")
    assert addresses("10.0.0.7", "10.0.0.7", "10.0.0.8")[0] == "10.0.0.7"
    assert addresses("127.0.0.1") == ("127.0.0.1",)


def test_a_ray_program_keeps_the_addresses_of_its_nodes() -> None:
    spec = gang(nodes=2, gpus=2, ray=True)
    assert addresses("127.0.0.1", "127.0.0.1", spec=spec) == ("127.0.0.1",) * 2


def test_another_job_has_another_tracking_id() -> None:
    cluster = Cluster(node("n1"), node("n2"))
    ids = [cluster.submit(gang(name)) for name in ("a", "b")]
    cluster.tick()
    tracking = [launches(cluster, id)[0].tracking_id for id in ids]
    assert [text.partition("-")[0] for text in tracking] == ids
    assert len(set(tracking)) == 2


def test_the_same_number_in_another_cluster_has_another_tracking_id() -> None:
    found = set()
    for wall in (1_000.0, 2_000.0):
        cluster = Cluster(node("n1"))
        cluster.wall = wall
        id = cluster.submit(gang())
        cluster.tick()
        found.add((id, launches(cluster, id)[0].tracking_id))
    assert len(found) == 2
    assert len({id for id, _ in found}) == 1
