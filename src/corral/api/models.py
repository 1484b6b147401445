"""Routes of models on nodes: list them, fetch and remove them; and for agents, which
nodes have content."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict

import msgspec
from fastapi import APIRouter
from starlette.responses import Response

from corral.api.app_state import House
from corral.api.auth import Caller
from corral.api.jobs import Asker, Within
from corral.api.secret_rights import known_secrets
from corral.control.kept_content import content_reports, peers_with
from corral.domain.content import (
    ContentFetch,
    ContentItem,
    ContentReport,
    names_like,
    progress_text,
)
from corral.domain.errors import Conflict, Forbidden, NotFound, SpecInvalid
from corral.domain.ids import NodeId
from corral.wire import model_answers as wire
from corral.wire.content_messages import ContentNow
from corral.wire.field_readers import WrongValue
from corral.wire.model_source import model_source_of

router = APIRouter()


@router.get("/v1/agents/content/{key}")
async def agent_content(key: str, house: Within, caller: Asker) -> Response:
    """Return the other nodes from which the calling node may fetch the content of this
    key, and the limit of its cache."""
    assert caller.node is not None
    control = house.control
    peers = peers_with(
        control.world,
        control.facts,
        key,
        asking=caller.node,
        most_bytes=house.settings.limits.model_cache_bytes,
    )
    return Response(
        msgspec.json.encode(peers),
        media_type="application/json",
        headers={"Cache-Control": "no-store"},
    )


@router.get("/v1/models")
async def models(house: Within, caller: Asker) -> wire.ModelsView:
    """Return the models on all nodes that are alive. Models that are not public are
    listed to operators only."""
    reports = content_reports(house.control.world, house.control.facts)
    return models_view(reports, sees_all=caller.oversees)


def models_view(
    reports: dict[NodeId, ContentReport], *, sees_all: bool
) -> wire.ModelsView:
    """Return the models by name, from the reports of the nodes."""
    views: dict[str, wire.ModelView] = {}
    for node, report in reports.items():
        for item in report.items:
            if item.is_public or sees_all:
                view = views.setdefault(item.key, _empty_view(item.name))
                view.sources.extend(set(item.sources) - set(view.sources))
                view.nodes.append(_item_view(node, item))
        for fetch in report.fetches if sees_all else ():
            view = views.setdefault(
                fetch.key or fetch.source, _empty_view(fetch.source)
            )
            view.sources.extend({fetch.source} - set(view.sources))
            view.nodes.append(_fetch_view(node, fetch))
    results = [
        wire.ModelResult(node=node, **asdict(result))
        for node, report in reports.items()
        for result in (report.results if sees_all else ())
    ]
    nodes = [
        wire.ModelNodeView(
            node=node, used_bytes=report.used_bytes, most_bytes=report.most_bytes
        )
        for node, report in reports.items()
    ]
    ordered = sorted(views.values(), key=lambda view: view.name)
    return wire.ModelsView(models=ordered, results=results, nodes=nodes)


def _empty_view(name: str) -> wire.ModelView:
    return wire.ModelView(name=name, sources=[], nodes=[])


def _item_view(node: NodeId, item: ContentItem) -> wire.ModelOnNode:
    return wire.ModelOnNode(
        node=node,
        state="there",
        used=item.is_used,
        pinned=item.is_pinned,
        used_at=item.used_at,
        done_bytes=item.size_bytes,
        size_bytes=item.size_bytes,
    )


def _fetch_view(node: NodeId, fetch: ContentFetch) -> wire.ModelOnNode:
    return wire.ModelOnNode(
        node=node,
        state="fetching",
        done_bytes=fetch.done_bytes,
        size_bytes=fetch.total_bytes,
        text=progress_text(node, fetch),
    )


@router.post("/v1/models/pull", status_code=202)
async def pull_model(
    body: wire.ModelPull, house: Within, caller: Asker
) -> wire.ModelAsked:
    """Let nodes fetch a model, or only change whether it is pinned on those that have
    it."""
    _check_fetched(body.source)
    nodes = _chosen_nodes(house, body)
    env = body.env | await _secret_values(house, caller, body.secrets)
    request = house.control.clock.fresh_id()
    pull = ContentNow(
        request=request,
        action="pull",
        source=body.source,
        user=caller.name,
        env=env,
        is_pinned=bool(body.pinned),
    )
    requests = [pull]
    if body.pinned is False:
        requests.append(
            ContentNow(request=f"{request}-unpin", action="unpin", source=body.source)
        )
    return _sent(house, nodes, requests)


@router.post("/v1/models/remove", status_code=202)
async def remove_model(
    body: wire.ModelRemove, house: Within, caller: Asker
) -> wire.ModelAsked:
    """Remove a model from nodes. Nodes where an attempt uses it keep it."""
    reports = content_reports(house.control.world, house.control.facts)
    name = _removed_name(reports, body.name)
    items = {
        node: item
        for node, report in reports.items()
        if (item := report.item_of(name)) is not None
        and (not body.nodes or node in body.nodes)
    }
    if not items:
        raise NotFound(
            "model",
            body.name,
            [item.name for report in reports.values() for item in report.items],
            see="corral model ls",
        )
    used_nodes = [node for node, item in items.items() if item.is_used]
    if used_nodes:
        raise Conflict(
            f"{body.name} is in use on {', '.join(used_nodes)}",
            hint="stop what uses it first: corral ps; or name other nodes: corral model "
            "rm NAME --node NODE",
        )
    request = ContentNow(
        request=house.control.clock.fresh_id(), action="remove", source=name
    )
    return _sent(house, list(items), [request])


def _removed_name(reports: Mapping[NodeId, ContentReport], text: str) -> str:
    """Return the name or the source of the model that the text means; without such a
    model, the text. Raises: Conflict."""
    if any(report.item_of(text) is not None for report in reports.values()):
        return text
    alike = names_like(
        (item for report in reports.values() for item in report.items), text
    )
    if len(alike) > 1:
        raise Conflict(
            f"{text} can be any of these models: {', '.join(alike)}",
            hint="write the name with its revision: corral model rm NAME@REVISION",
        )
    fetching = [
        node
        for node, report in reports.items()
        if any(text == fetch.source for fetch in report.fetches)
    ]
    if fetching and not alike:
        raise Conflict(
            f"{text} is still being fetched on {', '.join(sorted(fetching))}",
            hint="wait until it is there: corral model ls",
        )
    return alike[0] if alike else text


def _check_fetched(text: str) -> None:
    """Check that nodes can fetch the source. Raises: SpecInvalid."""
    try:
        source = model_source_of(text)
    except WrongValue as wrong:
        raise SpecInvalid(wrong.text, hint=wrong.hint) from None
    if not source.kind.is_fetched:
        raise SpecInvalid(
            f"{text} is a path, which nodes read where it is",
            hint=f"use it without a pull: model: {text}",
        )


def _chosen_nodes(house: House, body: wire.ModelPull) -> list[NodeId]:
    """Return the nodes that are to fetch the model. Raises: NotFound, Conflict."""
    world = house.control.world
    reports = content_reports(world, house.control.facts)
    if body.nodes:
        for name in body.nodes:
            if NodeId(name) not in world.nodes:
                raise NotFound("node", name, list(world.nodes), see="corral node ls")
        return [NodeId(name) for name in body.nodes]
    if not reports:
        raise Conflict("no node is alive now", hint="run: corral node ls")
    if body.all_nodes:
        return list(reports)
    having = [node for node, report in reports.items() if report.item_of(body.source)]
    roomiest = max(
        reports, key=lambda node: reports[node].most_bytes - reports[node].used_bytes
    )
    return having or [roomiest]


async def _secret_values(
    house: House, caller: Caller, names: Sequence[str]
) -> dict[str, str]:
    """Return the values of secrets that the caller may use. Raises: NotFound,
    Forbidden."""
    if not names:
        return {}
    store = house.control.store
    secrets = await known_secrets(store)
    values: dict[str, str] = {}
    for name in names:
        if not secrets.serves(name, caller.name):
            raise Forbidden(
                f"there is no secret {name[:80]} that you may use",
                hint="run: corral secret ls",
            )
        sealed = await store.secret(name)
        if sealed is None:
            raise NotFound("secret", name[:80], see="corral secret ls")
        values[name] = house.settings.seals.open(name, sealed).decode()
    return values


def _sent(
    house: House, nodes: Sequence[NodeId], requests: Sequence[ContentNow]
) -> wire.ModelAsked:
    """Send the requests to all these nodes. Raises: Conflict if one of them is not
    connected; then nothing is sent."""
    if away := house.channels.content(nodes, requests):
        raise Conflict(
            f"not connected now: {', '.join(away)}",
            hint="name other nodes: corral model pull NAME --node NODE; or run: corral "
            "node ls",
        )
    return wire.ModelAsked(request=requests[0].request, nodes=list(nodes))
