"""Routes by which machines join a cluster as nodes, and leave it."""

import secrets
from typing import Annotated, Final, Literal

from fastapi import APIRouter, Query

from corral.api import views
from corral.api.app_state import House
from corral.api.auth import Caller, token_digest
from corral.api.jobs import Asker, Within
from corral.control import jobs_on
from corral.domain.errors import (
    Conflict,
    SpecInvalid,
    TokenRevoked,
    TokenUsed,
    Unsupported,
)
from corral.domain.ids import NAME_RULE, NodeId, UserName, is_name
from corral.domain.node import Liveness
from corral.domain.pilot import is_part
from corral.domain.requests import SetNode
from corral.domain.time_point import moment_text
from corral.domain.users import (
    ANOTHER_JOIN,
    ANOTHER_NODE,
    NODE_TOKEN_SECONDS,
    Role,
    Token,
    token_id,
)
from corral.wire import api
from corral.wire import joining as wire
from corral.wire.agent_routes import RENEW

router = APIRouter()
PREFIX: Final = "corral_join_"  # so that one that got away can be found
SEEN_JOBS: Final = 5


@router.post("/v1/nodes/tokens", status_code=201)
async def create_join_token(
    body: wire.JoinTokenCreate, house: Within, caller: Asker
) -> wire.JoinTokenMade:
    """Create a token that allows N machines to join. Its secret is returned only
    once."""
    now = house.control.clock.wall()
    secret = PREFIX + secrets.token_urlsafe(24)
    digest = token_digest(secret)
    join_token = Token(
        id=token_id(digest),
        sha256=digest,
        user=caller.name,
        role=Role.JOIN,
        created_at=now,
        expires_at=now + body.expires_seconds,
        uses_left=body.uses,
    )
    detail = f"{body.uses} uses, until {moment_text(now + body.expires_seconds)}"
    await house.control.store.add_token(
        join_token, entry=caller.entry(now, on=join_token.id, detail=detail)
    )
    return wire.JoinTokenMade(
        token=secret,
        id=join_token.id,
        url=house.settings.url,
        fingerprint=house.settings.fingerprint(),
        uses=body.uses,
        expires_at=join_token.expires_at or now,
    )


@router.get("/v1/join")
async def needs(house: Within, caller: Asker) -> wire.JoinNeeds:
    """Return the requirements of this cluster for a joining machine. This request does
    not use up the join token."""
    return house.settings.needs()


@router.post("/v1/nodes/join", status_code=201)
async def join(body: wire.NodeJoin, house: Within, caller: Asker) -> wire.NodeJoined:
    """Register the machine, which presents a join token, as a node. The node
    authenticates from now on by a token that the machine has created itself."""
    if not is_name(body.node):
        raise SpecInvalid(
            f"{body.node[:80]!r} is not a valid name of a node", hint=f"use {NAME_RULE}"
        )
    if body.node in house.control.world.nodes:
        raise Conflict(
            f"the cluster already has a node {body.node}",
            hint="choose another name: corral join --name NAME; or, if the machine of that node "
            f"no longer exists, ask an operator to run: corral node rm {body.node}",
        )
    invitation = house.settings.invite(NodeId(body.node))
    store, now = house.control.store, house.control.clock.wall()
    node_token = Token(
        id=token_id(body.sha256),
        sha256=body.sha256,
        user=UserName(body.node),
        role=Role.NODE,
        node=NodeId(body.node),
        created_at=now,
        expires_at=now + NODE_TOKEN_SECONDS if _can_renew_tokens(house) else None,
    )
    entry = caller.entry(now, on=body.node, detail=f"token {node_token.id}")
    if await store.spend_token(caller.token, node_token, at=now, entry=entry) is None:
        raise TokenUsed(
            f"the join token {caller.token} has been used for as many machines as it allows",
            hint=ANOTHER_JOIN,
        )
    return wire.NodeJoined(
        node=body.node,
        cluster=house.control.world.cluster,
        url=house.settings.url,
        trusted=house.settings.trusted(),
        ray=invitation,
    )


@router.post("/v1/nodes/{node}/dead", status_code=202)
async def dead(node: str, house: Within, caller: Asker) -> api.NodeDetail:
    """Declare a silent node dead. The caller confirms that its machine is off or was
    restarted.

    The resources that the node held become free, and its jobs recover. If the node is
    still alive, the jobs run twice until its heartbeats arrive again.
    """
    found_node = views.find_node(house.control, node)
    if found_node.liveness == Liveness.ALIVE:
        raise Conflict(
            f"node {found_node.id} is not dead: its last heartbeat is a few seconds old",
            hint=f"to stop using the node, run: corral node drain {found_node.id}",
        )
    await _request_node_state(house, found_node.id, "dead", caller)
    return views.node_detail(house.control, views.find_node(house.control, node))


@router.delete("/v1/nodes/{node}", status_code=204)
async def remove(
    node: str, house: Within, caller: Asker, force: Annotated[bool, Query()] = False
) -> None:
    """Remove a node: revoke its token and delete the node. A node that holds jobs is
    refused, unless the node is dead or `force` accepts that work may be lost."""
    found_node = views.find_node(house.control, node)
    if found_node.id in house.settings.own_nodes():
        raise Conflict(
            f"node {found_node.id} cannot be removed: it is part of the head's own machine",
            hint="to start the head with fewer nodes, run: corral down; corral up --nodes N",
        )
    jobs = jobs_on(house.control.world, found_node.id)
    if jobs and found_node.liveness != Liveness.DEAD and not force:
        surplus_text = (
            f" and {len(jobs) - SEEN_JOBS} more" if len(jobs) > SEEN_JOBS else ""
        )
        raise Conflict(
            f"node {found_node.id} still has jobs: {', '.join(jobs[:SEEN_JOBS])}{surplus_text}",
            hint=f"move the jobs first: corral node drain {found_node.id}; or remove the node at "
            f"once and lose unsaved work: corral node rm {found_node.id} --force",
        )
    await _let_go(house, found_node.id, caller)


@router.post(RENEW)
async def renew(
    body: wire.TokenRenew, house: Within, caller: Asker
) -> wire.TokenRenewed:
    """Replace the node's token by one that the node has created, of which it sends the
    hash. A token that expired less than 30 days ago is accepted for this request only.
    The agent of one attempt can renew its token once: its first token becomes invalid,
    and the new one lasts as long as the attempt."""
    if not _can_renew_tokens(house):
        raise Unsupported(
            "a node of the engine ray cannot renew its token: it gets a new one at each start"
        )
    node = NodeId(_caller_node(caller))
    store, now = house.control.store, house.control.clock.wall()
    expires_at = None if is_part(node) else now + NODE_TOKEN_SECONDS
    node_token = Token(
        id=token_id(body.sha256),
        sha256=body.sha256,
        user=caller.name,
        role=Role.NODE,
        node=node,
        created_at=now,
        expires_at=expires_at,
    )
    entry = caller.entry(now, on=node_token.id, detail=f"node {node}")
    earlier = await store.renew_token(caller.token, node_token, at=now, entry=entry)
    if earlier is None:
        raise TokenRevoked(f"the token {caller.token} was revoked", hint=ANOTHER_NODE)
    house.channels.renewed(node, node_token.id)
    return wire.TokenRenewed(
        expires_at=expires_at, earlier_until=earlier.expires_at or now
    )


def _can_renew_tokens(house: House) -> bool:
    """Return whether nodes renew their tokens. With the Ray engine they do not: the
    engine issues a new token at each start of a node."""
    return house.settings.needs().engine != "ray"


@router.get("/v1/agents/node")
async def own_node(house: Within, caller: Asker) -> api.NodeDetail:
    """Return the node that the token belongs to. The node is not found before its first
    heartbeat."""
    return views.node_detail(
        house.control, views.find_node(house.control, _caller_node(caller))
    )


@router.delete("/v1/agents/node", status_code=204)
async def leave(house: Within, caller: Asker) -> None:
    """Remove the node that sends this request: it reports that nothing runs on it any
    more, and that it leaves the cluster."""
    await _let_go(house, NodeId(_caller_node(caller)), caller)


def _caller_node(caller: Caller) -> str:
    assert caller.node is not None
    return caller.node


async def _let_go(house: House, node: NodeId, caller: Caller) -> None:
    """Remove a node: revoke its tokens, close its connection, free the resources it
    held, then delete it."""
    control = house.control
    now = control.clock.wall()
    for token in await control.store.tokens():
        if token.node == node and token.revoked_at is None:
            entry = caller.entry(now, on=node, detail=f"token {token.id}")
            await control.store.revoke_token(token.id, at=now, entry=entry)
    house.channels.drop(node, "the node was removed from the cluster")
    if node not in control.world.nodes:
        return  # it joined, but sent no heartbeat
    if jobs_on(control.world, node):
        await _request_node_state(house, node, "dead", caller)
    await _request_node_state(house, node, "remove", caller)


async def _request_node_state(
    house: House, node: NodeId, to: Literal["dead", "remove"], caller: Caller
) -> None:
    set_node = SetNode(node=node, to=to)
    await house.control.ask(set_node, by=caller.name, speaker=caller.speaker)
