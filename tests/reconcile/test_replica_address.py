"""The address at which a replica listens, as its agent reports it."""

from dataclasses import replace

import pytest

from corral.control.services.routes import routes_of
from corral.domain.ids import JobId
from corral.domain.observed_state import Phase
from corral.reconcile.services.replica_address import accepted_address
from tests.reconcile.serving import Serving

NODE = "10.0.0.7"
JOB = JobId("j1_1")


@pytest.mark.parametrize(
    ("reported", "node_address", "accepted"),
    [
        ("10.1.2.3", NODE, "10.1.2.3"),
        ("fd00::12", NODE, "fd00::12"),
        ("10.1.2.3", "node-7.example", "10.1.2.3"),
        (NODE, NODE, ""),
        ("", NODE, ""),
        ("10.1.2.3", "127.0.0.1", "10.1.2.3"),
        ("127.0.0.2", "127.0.0.1", "127.0.0.2"),
        ("127.0.0.2", "localhost", "127.0.0.2"),
        ("127.0.0.1", NODE, ""),
        ("127.0.0.1", "node-7.example", ""),
        ("::1", NODE, ""),
        ("::ffff:127.0.0.1", NODE, ""),
        ("0.0.0.0", "127.0.0.1", ""),
        ("::", NODE, ""),
        ("169.254.169.254", NODE, ""),
        ("fe80::1", NODE, ""),
        ("224.0.0.1", NODE, ""),
        ("localhost", NODE, ""),
        ("metadata.internal", NODE, ""),
        ("127.1", NODE, ""),
        ("2130706433", NODE, ""),
    ],
)
def test_an_agent_directs_requests_only_to_addresses_of_the_network(
    reported: str, node_address: str, accepted: str
) -> None:
    assert accepted_address(reported, node_address) == accepted


def hosts(serving: Serving) -> list[str]:
    (entry,) = routes_of(serving.cluster.world, (), 1).services
    return [replica.host for replica in entry.replicas]


def test_requests_go_to_the_reported_address_of_the_attempt_that_is_ready() -> None:
    serving = Serving()
    serving.cluster.say(JOB, Phase.UP, is_ready=True, address="10.1.2.3")
    serving.tick()
    assert hosts(serving) == ["10.1.2.3"]
    serving.not_ready(1)
    assert hosts(serving) == ["10.1.2.3"], "its streams go on"
    serving.ready()
    assert hosts(serving) == ["127.0.0.1"]


def test_a_node_with_another_address_is_followed() -> None:
    serving = Serving()
    serving.cluster.say(JOB, Phase.UP, is_ready=True, address="127.0.0.1")
    serving.tick()
    world = serving.cluster.world
    (name,) = world.attempts[JOB].nodes
    world.nodes[name] = replace(world.nodes[name], address=NODE)
    assert hosts(serving) == [NODE]
