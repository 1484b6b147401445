"""Routes of the cluster: status, nodes, snapshots, secrets, the head's own end."""

import asyncio
import shutil
from collections import Counter
from collections.abc import Callable
from typing import Annotated, Final, Literal

from fastapi import APIRouter, Query, Request
from starlette.responses import FileResponse, JSONResponse, Response

from corral.api import views
from corral.api.auth import Caller
from corral.api.house import House
from corral.api.job_tokens import NAME as OWN
from corral.api.job_tokens import job_token
from corral.api.jobs import Asker, Within
from corral.api.secrets import secrets_for
from corral.api.settings import MEGABYTE
from corral.api.trust import holds, needs_snapshot
from corral.control import Control
from corral.domain.errors import Forbidden, NotFound, SpecInvalid
from corral.domain.ids import AttemptNumber, JobId
from corral.domain.units import size_text
from corral.domain.wishes import Cancel, SetLabels, SetNode
from corral.wire import api
from corral.wire.labels import set_labels
from corral.wire.read import is_secret_name

router = APIRouter()
LEAST_FREE_BYTES: Final = 16 * MEGABYTE  # SQLite's log alone may grow by as much
STOP_SECONDS: Final = 120.0  # that jobs are given to end before the head stops without them


@router.get("/healthz")
async def healthz() -> dict[str, str]:
    """The head is there. Says nothing else, for it asks for no token."""
    return {"status": "ok"}


@router.get("/v1/status", response_model=api.Status)
async def status(house: Within) -> Response:
    """Written by pydantic itself: thousands of nodes are answered at once."""
    control, settings = house.control, house.settings
    world = control.world
    found = api.Status(
        head=api.Head(
            pid=settings.pid,
            url=settings.url,
            version=settings.version,
            started_at=settings.started_at,
        ),
        cluster=api.Cluster(id=world.cluster, engine=control.engine.name, term=world.term),
        nodes=views.node_rows(world, control.facts.nodes, control.sensed.newest),
        gpus=views.gpus(world),
        jobs=dict(Counter(str(job.state) for job in world.jobs.values())),
        warnings=[
            *control.warnings(),
            *_full(house),
            *filter(None, [settings.too_few_files(len(world.nodes))]),
            *_told(house),
            *await _together(house),
        ],
        heads=[
            api.OneHead(
                name=one.name,
                url=one.url,
                leads=one.leads,
                silent_seconds=round(one.silent_seconds, 1),
            )
            for one in settings.heads()
        ],
    )
    return Response(found.model_dump_json(), media_type="application/json")


def _told(house: House) -> list[str]:
    return house.alerting.warnings() if house.alerting is not None else []


def _full(house: House) -> list[str]:
    """Where the disk of the cluster's directory has no room, nothing asked can be acknowledged."""
    root = house.settings.root
    try:
        disk = shutil.disk_usage(root)
    except OSError as error:
        return [f"the cluster's directory {root} cannot be looked at: {error.strerror}"]
    if disk.free >= LEAST_FREE_BYTES:
        return []
    return [
        f"the disk of {root} is full ({size_text(disk.free)} of {size_text(disk.total)} left): "
        "what is asked cannot be written down, nor what jobs print; make room there"
    ]


async def _together(house: House) -> list[str]:
    """Where several people share one account, each may read what the ranks of the others write.
    Where each has their own, it must get to its ranks."""
    account, users = house.settings.account, await house.control.store.users()
    if account is None:
        out = house.settings.kept_out(users)
        return [out] if out else []
    if len(users) < 2:
        return []
    return [f"the ranks of all users run as {account}: only a head that root starts parts them"]


@router.get("/v1/nodes")
async def nodes(house: Within) -> api.Nodes:
    control = house.control
    return api.Nodes(
        nodes=views.node_rows(control.world, control.facts.nodes, control.sensed.newest)
    )


@router.get("/v1/nodes/{node}")
async def node(node: str, house: Within) -> api.NodeDetail:
    return views.node_detail(house.control, views.find_node(house.control, node))


@router.post("/v1/nodes/{node}/cordon", status_code=202)
async def cordon(node: str, house: Within, caller: Asker) -> api.NodeDetail:
    """No new work for the node."""
    return await _set_node(house, node, "cordon", caller)


@router.post("/v1/nodes/{node}/drain", status_code=202)
async def drain(node: str, house: Within, caller: Asker) -> api.NodeDetail:
    """No new work for the node, and what runs there is moved."""
    return await _set_node(house, node, "drain", caller)


@router.post("/v1/nodes/{node}/uncordon", status_code=202)
async def uncordon(node: str, house: Within, caller: Asker) -> api.NodeDetail:
    """Both undone."""
    return await _set_node(house, node, "uncordon", caller)


@router.patch("/v1/nodes/{node}/labels", status_code=202)
async def label(node: str, body: api.NodeLabels, house: Within, caller: Asker) -> api.NodeDetail:
    """Set labels of the node, and take those away that are null; others stay. They hold from the
    next pass on, for whoever waits, whatever the node declares itself."""
    found = views.find_node(house.control, node)
    asked = SetLabels(node=found.id, labels=set_labels(body.labels))
    await house.control.ask(asked, by=caller.name, token=caller.token)
    return views.node_detail(house.control, views.find_node(house.control, node))


async def _set_node(
    house: House, name: str, to: Literal["cordon", "drain", "uncordon"], caller: Caller
) -> api.NodeDetail:
    found = views.find_node(house.control, name)
    await house.control.ask(SetNode(node=found.id, to=to), by=caller.name, token=caller.token)
    return await node(name, house)


@router.head("/v1/snapshots/{sha256}")
async def has_snapshot(sha256: str, house: Within) -> Response:
    size = house.snapshots.asked(sha256)
    return Response(headers={"X-Size-Bytes": str(size)})


@router.put("/v1/snapshots/{sha256}")
async def put_snapshot(sha256: str, request: Request, house: Within) -> api.Kept:
    """The body is the tar.gz whose SHA-256 the path says. Again is harmless."""
    fresh = house.control.clock.fresh_id()
    size = await house.snapshots.put(sha256, request.stream(), fresh)
    return api.Kept(sha256=sha256, size_bytes=size)


@router.get("/v1/secrets")
async def secrets(house: Within) -> api.Secrets:
    """Names only."""
    found = await house.control.store.secrets()
    return api.Secrets(secrets=[api.Secret(name=name, by=by, at=at) for name, by, at in found])


@router.put("/v1/secrets/{name}", status_code=204)
async def put_secret(name: str, body: api.SecretValue, house: Within, caller: Asker) -> None:
    """Keep it sealed. Another's secret is overwritten by an admin only."""
    if not is_secret_name(name):
        raise SpecInvalid(
            f"{name[:80]!r} cannot name a secret: it becomes a variable",
            hint="use letters, digits and _, for example HF_TOKEN",
        )
    await _check_secret(house, name, caller)
    control = house.control
    sealed = house.settings.seals.seal(name, body.value.encode())
    now = control.clock.wall()
    entry = caller.entry(now, on=name)
    await control.store.put_secret(name, sealed, by=caller.name, at=now, entry=entry)


@router.delete("/v1/secrets/{name}", status_code=204)
async def drop_secret(name: str, house: Within, caller: Asker) -> None:
    await _check_secret(house, name, caller)
    entry = caller.entry(house.control.clock.wall(), on=name)
    if not await house.control.store.drop_secret(name, entry=entry):
        known = [one for one, _, _ in await house.control.store.secrets()]
        raise NotFound("secret", name[:80], known, see="corral secret ls")


async def _check_secret(house: House, name: str, caller: Caller) -> None:
    owners = {one: by for one, by, _ in await house.control.store.secrets()}
    caller.check_owner(owners.get(name, caller.name), f"secret {name}")


@router.post("/v1/head/down", status_code=202)
async def down(body: api.HeadDown, house: Within, caller: Asker) -> dict[str, str]:
    """Stop the head. With `jobs: stop` their cancels are durable before this answers."""
    unfinished = list(house.control.world.jobs) if body.jobs == "stop" else []
    now = house.control.clock.wall()
    await house.control.store.record(caller.entry(now, detail=f"jobs: {body.jobs}"))
    wishes = (Cancel(job=job) for job in unfinished)  # one after the other each costs a look
    await asyncio.gather(
        *(house.control.acknowledge(one, by=caller.name, token=caller.token) for one in wishes)
    )
    house.later(_stop(house.control, unfinished, house.settings.stop))
    return {"jobs": body.jobs}


async def _stop(control: Control, jobs: list[JobId], stop: Callable[[], None]) -> None:
    """When the jobs are over, or have taken too long."""
    give_up_at = control.clock.monotonic() + STOP_SECONDS
    async with control.hub.follow(None) as news:
        while any(job in control.world.jobs for job in jobs):
            left = give_up_at - control.clock.monotonic()
            if left <= 0:
                break
            try:
                async with asyncio.timeout(left):
                    await news.get()
            except TimeoutError:
                break
    stop()


@router.get("/v1/agents/snapshots/{sha256}")
async def agent_snapshot(sha256: str, house: Within, caller: Asker) -> FileResponse:
    """A workdir, for a node that has an attempt with it."""
    assert caller.node is not None
    if not needs_snapshot(house.control.world, caller.node, sha256):
        raise Forbidden(f"no attempt on node {caller.node} has this workdir")
    return FileResponse(house.snapshots.path(sha256), media_type="application/gzip")


@router.get("/v1/agents/secrets/{job}/{attempt}")
async def agent_secrets(job: str, attempt: int, house: Within, caller: Asker) -> JSONResponse:
    """{"secrets": {name: value}} of an attempt that is placed on the node. One that is not set, or
    is by now another user's, is left out."""
    assert caller.node is not None
    world = house.control.world
    id = JobId(job)
    if not holds(world, caller.node, id, AttemptNumber(attempt)):
        raise Forbidden(f"{job[:40]}.{attempt} is not placed on node {caller.node}")
    found: dict[str, str] = {}
    asked = world.jobs[id]
    usable, _ = (
        await secrets_for(house.control.store, asked.owner) if asked.spec.secrets else ((), ())
    )
    if OWN in asked.spec.secrets:
        found[OWN] = job_token(house.settings.seals, (id, AttemptNumber(attempt)))
    for name in (one for one in asked.spec.secrets if one != OWN):
        sealed = await house.control.store.secret(name) if name in usable else None
        if sealed is not None:
            found[name] = house.settings.seals.open(name, sealed).decode()
    return JSONResponse({"secrets": found}, headers={"Cache-Control": "no-store"})


@router.get("/v1/agents/forgotten")
async def agent_forgotten(
    house: Within, jobs: Annotated[str, Query(max_length=10_000)] = ""
) -> JSONResponse:
    """{"forgotten": [id]}: which of the jobs, whose ids are joined by commas, are not kept any
    more: what a node still has of them may go."""
    world = house.control.world
    asked = [JobId(one) for one in jobs.split(",")]
    return JSONResponse({"forgotten": [job for job in asked if world.forgot(job)]})
