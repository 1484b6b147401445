"""Routes of the cluster: status, nodes, snapshots, secrets, and the shutdown of the
head."""

import asyncio
from collections import Counter
from collections.abc import Callable
from dataclasses import asdict, replace
from typing import Annotated, Final, Literal

from fastapi import APIRouter, Query
from starlette.responses import JSONResponse, Response

from corral.api import views
from corral.api.app_state import House
from corral.api.auth import Caller
from corral.api.job_tokens import NAME as OWN
from corral.api.job_tokens import job_token
from corral.api.job_visibility import shown_node, sight_of
from corral.api.jobs import Asker, Within
from corral.api.node_trust import holds
from corral.api.secret_rights import known_secrets
from corral.api.settings import MEGABYTE
from corral.control import Control
from corral.control.node_warnings import account_warnings
from corral.domain.cluster_warning import ClusterWarning, WarningCode
from corral.domain.errors import Forbidden
from corral.domain.ids import AttemptNumber, JobId, ServiceName
from corral.domain.requests import (
    Asked,
    ChangeJobs,
    SetLabels,
    SetNode,
    StopService,
)
from corral.domain.units import size_text
from corral.domain.user_isolation import separations
from corral.wire import api
from corral.wire.node_labels import set_labels

router = APIRouter()
LEAST_FREE_BYTES: Final = 16 * MEGABYTE  # SQLite's log alone may grow by as much
# that jobs are given to end before the head stops without them
STOP_SECONDS: Final = 120.0


@router.get("/healthz")
async def healthz() -> dict[str, str]:
    """Answer that the head is running. The answer holds nothing else, because the route
    needs no token."""
    return {"status": "ok"}


@router.get("/v1/status", response_model=api.Status)
async def status(house: Within, caller: Asker) -> Response:
    """Return the status of the cluster. The answer is encoded by pydantic directly,
    because it may hold thousands of nodes."""
    control, settings = house.control, house.settings
    world, sight = control.world, sight_of(control, caller)
    rows = views.node_rows(world, control.facts.nodes, control.sensed.newest)
    status_view = api.Status(
        head=api.HeadView(
            pid=settings.pid,
            url=settings.url,
            version=settings.version,
            started_at=settings.started_at,
        ),
        cluster=api.ClusterView(
            id=world.cluster, engine=control.engine.name, term=world.term
        ),
        nodes=[shown_node(sight, row) for row in rows],
        gpus=views.gpus(world),
        jobs=dict(Counter(str(job.state) for job in world.jobs.values())),
        warnings=[
            api.WarningView.of(replace(warning, text=sight.text(warning.text)))
            for warning in (*control.warnings(), *await _head_warnings(house))
        ],
        heads=[
            api.OneHead(
                name=head.name,
                url=head.url,
                leads=head.leads,
                silent_seconds=round(head.silent_seconds, 1),
            )
            for head in settings.heads()
        ],
        separation=[
            api.UserIsolationView.of(separation, nodes)
            for separation, nodes in separations(world.nodes.values()).items()
        ],
        gateway=_gateway_view(settings.gateway_url()),
    )
    return Response(status_view.model_dump_json(), media_type="application/json")


def _gateway_view(url: str) -> api.GatewayView | None:
    return api.GatewayView(url=url) if url else None


async def _head_warnings(house: House) -> list[ClusterWarning]:
    """Return warnings about the head's own machine, its messages and its users."""
    settings = house.settings
    alert_texts = house.alerting.warnings() if house.alerting is not None else []
    texts = {
        WarningCode.DISK_FULL: _full_disks(house),
        WarningCode.FEW_FILES: [settings.too_few_files(len(house.control.world.nodes))],
        WarningCode.AUDIT: [settings.audit_trouble()],
        WarningCode.ALERTS: alert_texts,
    }
    return [
        *(
            ClusterWarning(code=code, text=text)
            for code, code_texts in texts.items()
            for text in code_texts
            if text
        ),
        *await _users_not_separated(house),
    ]


def _full_disks(house: House) -> list[str]:
    """Return a warning text for each full disk of the head: on a full disk, no request
    can be acknowledged."""
    root = house.settings.root
    folders = dict.fromkeys((root, house.settings.snapshots.parent))
    warning_by_folder = {folder: house.disk.warning(folder) for folder in folders}
    if (
        warning_by_folder[root]
        and (room := house.disk.room_now(root))
        and room.free < LEAST_FREE_BYTES
    ):
        warning_by_folder[root] = (
            f"the disk of {root} is full ({size_text(room.free)} of {size_text(room.total)} left): "
            "neither requests nor the output of jobs can be stored; free space there"
        )
    return [warning for warning in warning_by_folder.values() if warning]


async def _users_not_separated(house: House) -> list[ClusterWarning]:
    """Return warnings about nodes on which users are not isolated from each other, and
    about users whose ranks have no access to their files."""
    users = await house.control.store.users()
    account_list = list(
        account_warnings(house.control.world.nodes.values(), len(users))
    )
    if text := house.settings.kept_out(users):
        warning = ClusterWarning(code=WarningCode.USERS_KEPT_OUT, text=text)
        return [warning, *account_list]
    return account_list


@router.get("/v1/nodes")
async def nodes(house: Within, caller: Asker) -> api.Nodes:
    control, sight = house.control, sight_of(house.control, caller)
    rows = views.node_rows(control.world, control.facts.nodes, control.sensed.newest)
    return api.Nodes(nodes=[shown_node(sight, row) for row in rows])


@router.get("/v1/nodes/{node}")
async def node(node: str, house: Within, caller: Asker) -> api.NodeDetail:
    node_detail = views.node_detail(house.control, views.find_node(house.control, node))
    return shown_node(sight_of(house.control, caller), node_detail)


@router.post("/v1/nodes/{node}/cordon", status_code=202)
async def cordon(node: str, house: Within, caller: Asker) -> api.NodeDetail:
    """Cordon the node: it gets no new work."""
    return await _set_node(house, node, "cordon", caller)


@router.post("/v1/nodes/{node}/drain", status_code=202)
async def drain(node: str, house: Within, caller: Asker) -> api.NodeDetail:
    """Drain the node: it gets no new work, and the attempts that run on it are moved."""
    return await _set_node(house, node, "drain", caller)


@router.post("/v1/nodes/{node}/uncordon", status_code=202)
async def uncordon(node: str, house: Within, caller: Asker) -> api.NodeDetail:
    """Undo a cordon or a drain of the node."""
    return await _set_node(house, node, "uncordon", caller)


@router.patch("/v1/nodes/{node}/labels", status_code=202)
async def label(
    node: str, body: api.NodeLabels, house: Within, caller: Asker
) -> api.NodeDetail:
    """Set labels of the node, and remove the labels whose value is null; other labels
    stay. From the next scheduling pass on, the labels apply to all waiting jobs, and
    override the labels that the node declares itself."""
    found_node = views.find_node(house.control, node)
    labels = SetLabels(node=found_node.id, labels=set_labels(body.labels))
    await house.control.ask(labels, by=caller.name, speaker=caller.speaker)
    return views.node_detail(house.control, views.find_node(house.control, node))


async def _set_node(
    house: House, name: str, to: Literal["cordon", "drain", "uncordon"], caller: Caller
) -> api.NodeDetail:
    found_node = views.find_node(house.control, name)
    await house.control.ask(
        SetNode(node=found_node.id, to=to), by=caller.name, speaker=caller.speaker
    )
    return await node(name, house, caller)


@router.post("/v1/head/down", status_code=202)
async def down(body: api.HeadDown, house: Within, caller: Asker) -> dict[str, str]:
    """Stop the head. With `jobs: stop`, the ends of all services and the cancellations
    of all jobs are durable before the answer."""
    control, world = house.control, house.control.world
    unfinished = list(world.jobs) if body.jobs == "stop" else []
    services = list(world.services) if body.jobs == "stop" else []
    now = control.clock.wall()
    await control.store.record(caller.entry(now, detail=f"jobs: {body.jobs}"))
    # first: else they make other replicas
    requests: list[Asked] = [StopService(service=name) for name in services]
    if unfinished:
        requests.append(ChangeJobs(jobs=tuple(unfinished), to="cancel"))
    for request in requests:
        await control.acknowledge(request, by=caller.name, speaker=caller.speaker)
    house.later(_stop_after_jobs(control, unfinished, services, house.settings.stop))
    return {"jobs": body.jobs}


async def _stop_after_jobs(
    control: Control,
    jobs: list[JobId],
    services: list[ServiceName],
    stop: Callable[[], None],
) -> None:
    """Stop the head when none of these jobs is unfinished any more, and none of these
    services is left, or after a time limit."""

    def is_any_left() -> bool:
        world = control.world
        return any(job in world.jobs for job in jobs) or any(
            service in world.services for service in services
        )

    give_up_at = control.clock.monotonic() + STOP_SECONDS
    async with control.hub.follow(None) as news:
        while is_any_left():
            remaining_seconds = give_up_at - control.clock.monotonic()
            if remaining_seconds <= 0:
                break
            try:
                async with asyncio.timeout(remaining_seconds):
                    await news.get()
            except TimeoutError:
                break
    stop()


@router.get("/v1/agents/secrets/{job}/{attempt}")
async def agent_secrets(
    job: str, attempt: int, house: Within, caller: Asker
) -> JSONResponse:
    """Return {"secrets": {name: value}} of an attempt that is placed on the calling
    node. A secret that is not set, or that now belongs to another user, is left out."""
    assert caller.node is not None
    world = house.control.world
    id = JobId(job)
    if not holds(world, caller.node, id, AttemptNumber(attempt)):
        raise Forbidden(
            f"attempt {job[:40]}.{attempt} is not placed on node {caller.node}"
        )
    values: dict[str, str] = {}
    asked_job = world.jobs[id]
    secret_names = [secret for secret in asked_job.spec.secrets if secret != OWN]
    secrets = await known_secrets(house.control.store) if secret_names else None
    if OWN in asked_job.spec.secrets:
        values[OWN] = job_token(house.settings.seals, (id, AttemptNumber(attempt)))
    for name in secret_names:
        is_usable = secrets is not None and secrets.serves(name, asked_job.owner)
        sealed = await house.control.store.secret(name) if is_usable else None
        if sealed is not None:
            values[name] = house.settings.seals.open(name, sealed).decode()
    if values:
        now, names = house.control.clock.wall(), ", ".join(values)
        entry = caller.entry(
            now, on=f"{id}.{attempt}", detail=f"{names} of {asked_job.owner}"
        )
        await house.control.store.record(entry)
    return JSONResponse({"secrets": values}, headers={"Cache-Control": "no-store"})


@router.get("/v1/agents/owners/{job}/{attempt}")
async def agent_owner(
    job: str, attempt: int, house: Within, caller: Asker
) -> JSONResponse:
    """Return {"number": n}: the cluster's number of the user who owns an attempt. The
    attempt must be placed on the calling node."""
    assert caller.node is not None
    world, id = house.control.world, JobId(job)
    if not holds(world, caller.node, id, AttemptNumber(attempt)):
        raise Forbidden(
            f"attempt {job[:40]}.{attempt} is not placed on node {caller.node}"
        )
    owner = world.jobs[id].owner
    users = {user.name: user for user in await house.control.store.users()}
    if owner not in users:
        raise Forbidden(
            f"the attempt of job {job[:40]} cannot start: its owner {owner} was removed "
            "from the cluster"
        )
    number = await house.owner_numbers.of(house.control.store, users[owner])
    return JSONResponse({"number": number})


@router.get("/v1/agents/forgotten")
async def agent_forgotten(
    house: Within, jobs: Annotated[str, Query(max_length=10_000)] = ""
) -> JSONResponse:
    """Return {"forgotten": [id], "work": limits}. `jobs` holds job ids, separated by
    commas. `forgotten` lists those that the head does not keep any more, so that the
    node may remove their files. `work` holds the limits for the files of the other
    jobs."""
    world = house.control.world
    job_ids = [JobId(job_id) for job_id in jobs.split(",")]
    forgotten = [job for job in job_ids if world.forgot(job)]
    return JSONResponse({"forgotten": forgotten, "work": asdict(house.settings.work)})
