"""Ports of replicas on several nodes: one at which their ranks meet, and another one on
which the first node listens for requests."""

from dataclasses import replace
from typing import Any

from corral.control.services.routes import routes_of
from corral.domain.ids import JobId
from corral.domain.service import ServiceSpec
from corral.domain.service_affinity import Affinity
from corral.reconcile.desired_state import launch_of
from corral.wire.gateway_routes import KvEventsEntry
from tests.reconcile.serving import Serving, service_spec
from tests.reconcile.test_services_roles import roles_spec
from tests.worlds import gang

JOB = JobId("j1_1")


def on_two_nodes(**more: Any) -> ServiceSpec:
    spec = service_spec(**more)
    return replace(spec, replica=replace(spec.replica, nodes=2))


def ports_by_node(serving: Serving) -> dict[str, list[int]]:
    """Ports of each node that belong to unreleased allocations."""
    ports: dict[str, list[int]] = {}
    for allocation in serving.cluster.world.allocations.values():
        ports.setdefault(allocation.seat.node, []).extend(allocation.ports)
    return ports


def test_a_replica_on_several_nodes_listens_on_a_port_of_its_own() -> None:
    serving = Serving(on_two_nodes())
    serving.ready()
    world = serving.cluster.world
    attempt = world.attempts[JOB]
    assert (attempt.master_port, attempt.replica_port) == (20001, 20003)
    job = world.jobs[JOB]
    for node in attempt.nodes:
        launch = launch_of(world, job, attempt, node)
        assert (launch.master_port, launch.listening_port) == (20001, 20003)
    (entry,) = routes_of(world, (), 1).services
    assert [replica.port for replica in entry.replicas] == [20003]


def test_a_replica_on_one_node_needs_no_second_port() -> None:
    serving = Serving()
    serving.ready()
    world = serving.cluster.world
    attempt = world.attempts[JOB]
    assert (attempt.replica_port, attempt.listening_port) == (None, 20001)
    (entry,) = routes_of(world, (), 1).services
    assert [replica.port for replica in entry.replicas] == [20001]


def test_a_replica_with_exact_affinity_gets_ports_for_the_events_of_its_cache() -> None:
    serving = Serving(service_spec(affinity=Affinity.EXACT))
    serving.ready()
    world = serving.cluster.world
    attempt = world.attempts[JOB]
    assert (attempt.listening_port, attempt.kv_ports) == (20001, (20002, 20003))
    launch = launch_of(world, world.jobs[JOB], attempt, attempt.nodes[0])
    assert launch.ports == (20001, 20001, 20002, 20003)
    (entry,) = routes_of(world, (), 1).services
    (replica,) = entry.replicas
    assert replica.kv_events == KvEventsEntry(port=20002, replay_port=20003)
    assert ports_by_node(serving)[attempt.nodes[0]] == [20001, 20002, 20003]


def test_a_transfer_port_is_no_other_port_and_may_be_missing() -> None:
    both = roles_spec(prefill=(1, 1), decode=(0, 0), affinity=Affinity.EXACT)
    serving = serving_with_ports((1, 2, 3, 4), both)
    (attempt,) = serving.cluster.world.attempts.values()
    ports = {attempt.listening_port, attempt.transfer_port, *attempt.kv_ports}
    assert ports == {1, 2, 3, 4}
    assert sorted(ports_by_node(serving)[attempt.nodes[0]]) == [1, 2, 3, 4]
    serving = serving_with_ports((1,), both)
    (attempt,) = serving.cluster.world.attempts.values()
    assert (attempt.listening_port, attempt.transfer_port) == (1, None)


def test_with_too_few_ports_it_serves_without_the_events_of_its_cache() -> None:
    spec = service_spec(affinity=Affinity.EXACT)
    serving = serving_with_ports((1, 2), spec)
    (attempt,) = serving.cluster.world.attempts.values()
    assert (attempt.listening_port, attempt.kv_ports) == (1, ())
    (entry,) = routes_of(serving.cluster.world, (), 1).services
    assert [replica.kv_events for replica in entry.replicas] == [None]


def test_a_gang_that_is_not_a_replica_has_one_port() -> None:
    serving = Serving()
    id = serving.cluster.submit(gang("train", nodes=2))
    assert serving.cluster.world.attempts[id].replica_port is None


def serving_with_ports(ports: tuple[int, ...], spec: ServiceSpec) -> Serving:
    """A service with this spec on two nodes with these ports, ready since its start."""
    serving = Serving(nodes=2)
    serving.stop()
    serving.leave()
    for id, one in serving.cluster.nodes.items():
        inventory = replace(one.inventory, ports=ports)
        serving.cluster.nodes[id] = replace(one, inventory=inventory)
    serving.tick()
    serving.apply(spec)
    serving.ready()
    return serving


def test_no_port_is_given_twice_in_one_pass_or_later() -> None:
    spec = on_two_nodes(min_replicas=2, max_replicas=3)
    serving = serving_with_ports((1, 2, 3, 4, 5, 6), spec)
    attempts = serving.cluster.world.attempts.values()
    given = [(one.master_port, one.replica_port) for one in attempts]
    assert given == [(1, 6), (2, 5)], "in one pass"
    assert {one.nodes[0] for one in attempts} == {"n1"}
    id = serving.cluster.submit(gang("train", gpus=0))
    assert serving.cluster.world.attempts[id].master_port == 3, "in a later pass"
    assert ports_by_node(serving)["n1"] == [1, 6, 2, 5, 3]


def test_the_second_port_of_a_replica_is_never_the_first_one_of_a_later_job() -> None:
    serving = serving_with_ports((1, 2), on_two_nodes())
    id = serving.cluster.submit(gang("train", gpus=0))
    attempt = serving.cluster.world.attempts[id]
    assert attempt.nodes == ("n1",)
    assert attempt.master_port == 0


def test_without_a_second_free_port_it_listens_where_its_ranks_meet() -> None:
    serving = serving_with_ports((1,), on_two_nodes())
    (attempt,) = serving.cluster.world.attempts.values()
    assert (attempt.replica_port, attempt.listening_port) == (None, 1)


def test_the_ports_are_free_again_after_the_end_of_the_replica() -> None:
    serving = Serving(on_two_nodes(), nodes=2)
    serving.up(1)
    serving.crash(1)
    serving.tick(2.0)
    attempt = serving.cluster.world.attempts[JobId("j1_2")]
    assert (attempt.master_port, attempt.replica_port) == (20001, 20003)
