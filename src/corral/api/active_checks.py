"""Routes of active checks, which run on request."""

import secrets

from fastapi import APIRouter

from corral.api import views
from corral.api.job_visibility import CallerView, sight_of
from corral.api.jobs import Asker, Within
from corral.control import jobs_on
from corral.domain.active_checks import CheckKind
from corral.domain.node import Node
from corral.domain.requests import CheckNodes
from corral.wire import api

router = APIRouter()


@router.post("/v1/checkups", status_code=202)
async def check_nodes(
    body: api.CheckAsked, house: Within, caller: Asker
) -> api.Checkup:
    """Request active checks of the named nodes, or of all nodes. Each check begins as
    soon as no job runs on its node. No job waits for a check: the check ends at once
    when a job is to run on the node."""
    control = house.control
    requested_ids = [views.find_node(control, name).id for name in body.nodes]
    request = CheckNodes(
        nodes=tuple(requested_ids or control.world.nodes),
        kinds=tuple(CheckKind(kind) for kind in dict.fromkeys(body.kinds)),
        paths=tuple(dict.fromkeys(body.paths)),
        seconds=body.seconds,
        max_wait_seconds=body.max_wait_seconds,
        secret=secrets.token_hex(32),
    )
    stored = await control.ask(request, by=caller.name, speaker=caller.speaker)
    sight = sight_of(control, caller)
    able = [id for id in request.nodes if control.world.nodes[id].inventory.checks]
    unable: list[str] = [id for id in request.nodes if id not in able]
    nodes = [
        checked(sight, control.world.nodes[id], f"{stored.sequence}") for id in able
    ]
    return api.Checkup(id=f"{stored.sequence}", nodes=nodes, unable=unable)


@router.get("/v1/checkups/{checkup}")
async def checkup(checkup: str, house: Within, caller: Asker) -> api.Checkup:
    """Return the nodes on which the check-up with this id is pending or running, and
    the nodes that still have results of it, which no later check has replaced."""
    sight = sight_of(house.control, caller)
    nodes = [checked(sight, node, checkup) for node in sight.world.nodes.values()]
    return api.Checkup(
        id=checkup,
        nodes=[
            checked_node
            for checked_node in nodes
            if checked_node.state != "over" or checked_node.results
        ],
    )


def checked(sight: CallerView, node: Node, id: str) -> api.CheckedNode:
    """Return the node's state (waiting, running or over) and results in the check-up
    with this id. Ids of link checks consist of the check-up's id and further numbers.
    """
    pending_checkups = [
        check_up for check_up in node.checkups if is_of(check_up.id, id)
    ]
    state = "over"
    if pending_checkups:
        state = (
            "running"
            if any(check_up.begun_at is not None for check_up in pending_checkups)
            else "waiting"
        )
    return api.CheckedNode(
        node=node.id,
        state=state,
        jobs=[str(job) for job in sight.ids(jobs_on(sight.world, node.id))],
        health=sight.text(node.worst.says) if node.worst is not None else "",
        results=api.results_of(
            [measure for measure in node.measures if is_of(measure.checkup, id)]
        ),
    )


def is_of(own: str, asked: str) -> bool:
    return own == asked or own.startswith(f"{asked}.")
