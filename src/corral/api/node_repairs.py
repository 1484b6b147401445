"""Repairs of nodes: a person confirms that a node is repaired, or cordons all suspect
nodes."""

from fastapi import APIRouter

from corral.api import views
from corral.api.jobs import Asker, Within
from corral.domain.requests import CordonSuspects, SetNode
from corral.wire import api

router = APIRouter()


@router.post("/v1/nodes/{node}/clear", status_code=202)
async def clear(node: str, house: Within, caller: Asker) -> api.NodeDetail:
    """Record that all faulty conditions of the node are repaired. The node takes work
    again unless a person has cordoned it."""
    control = house.control
    found_node = views.find_node(control, node)
    await control.ask(
        SetNode(node=found_node.id, to="clear"), by=caller.name, speaker=caller.speaker
    )
    return views.node_detail(control, views.find_node(control, node))


@router.post("/v1/suspects/cordon", status_code=202)
async def cordon_suspects(house: Within, caller: Asker) -> api.Nodes:
    """Cordon or drain each suspect node, as its health requires. Suspect nodes are
    those that the circuit breaker or the settings left for a person to decide. Return
    these nodes."""
    control = house.control
    suspects = {id for id, node in control.world.nodes.items() if node.suspect}
    await control.ask(CordonSuspects(), by=caller.name, speaker=caller.speaker)
    rows = views.node_rows(control.world, control.facts.nodes, control.sensed.newest)
    return api.Nodes(nodes=[row for row in rows if row.id in suspects])
