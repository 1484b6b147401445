"""A plan for a cluster that is not up: the answer that a head would give if it were
started on this machine now."""

import getpass
import os

from corral.agent.discovery.client import cpu_millis
from corral.agent.discovery.helper import pretend_gpus, real_gpus
from corral.api.views import planned
from corral.boot.bring_up import decide, real_gpu_count
from corral.boot.clock import SystemClock
from corral.boot.cluster_options import ClusterOptions
from corral.boot.engines import local_settings
from corral.boot.settings import ClusterDir
from corral.client.spec_input import WireSpecs
from corral.control.request_checks import check_specs, normal, plan
from corral.domain.errors import NotFound
from corral.domain.ids import ClusterId, UserName
from corral.domain.node import Liveness, Node
from corral.domain.observed_state import Facts, NodeFacts
from corral.domain.resources import Inventory
from corral.domain.world import World
from corral.reconcile.changeset import Now
from corral.wire import api
from corral.wire.node import NodeSettings
from corral.wire.spec_reader import parse_values
from corral.wire.submission import to_domain

PORTS = range(29500, 29600)  # a stand-in: the real ones are chosen when a node starts


def plan_without_head(place: ClusterDir, wire_specs: WireSpecs) -> list[api.PlannedJob]:
    """Return the plan for these jobs; nothing is started, written or sent.

    Raises: the same refusals as a submission.
    """
    world = expected_world(place)
    parsed = parse_values(wire_specs.without_workdirs(), source="spec")
    specs = tuple(normal(world, spec) for spec in to_domain(parsed))
    check_specs(world, specs, cannot={})
    for spec in specs:
        if spec.checkpoint is not None and spec.checkpoint.source:
            raise NotFound("job", spec.checkpoint.source, see="corral up")
    now = Now(wall=SystemClock().wall(), serving=0.0)
    me = UserName(getpass.getuser())
    return [
        planned(plan_row)
        for plan_row in plan(world, _all_nodes_alive_facts(world), specs, now, by=me)
    ]


def _all_nodes_alive_facts(world: World) -> Facts:
    """Return facts in which every node of the world has just sent a heartbeat."""
    return Facts(
        nodes={
            id: NodeFacts(
                node=id, boot=node.boot, heard_at=0.0, inventory=node.inventory
            )
            for id, node in world.nodes.items()
        }
    )


def expected_world(place: ClusterDir) -> World:
    """Return the state of a cluster with the nodes that `corral up` would create on
    this machine, all alive and empty."""
    memory_bytes = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    settings = local_settings(place, decide(place, ClusterOptions(), real_gpu_count))
    world = World(cluster=ClusterId(""), term=0)
    for node in settings.of_nodes(place.root, memory_bytes):
        world.nodes[node.node] = Node(
            id=node.node, inventory=expected_inventory(node), liveness=Liveness.ALIVE
        )
    return world


def expected_inventory(node: NodeSettings) -> Inventory:
    real = node.pretend_gpus is None
    return Inventory(
        gpus=real_gpus(node.real_gpus) if real else pretend_gpus(node),
        cpu_millis=node.cpu_millis or cpu_millis(),
        memory_bytes=node.memory_bytes or 0,
        ports=tuple(PORTS),
        shared=tuple((path, path) for path in node.shared),
        labels=node.labels,
        gpu_shares=node.gpu_shares,
    )
