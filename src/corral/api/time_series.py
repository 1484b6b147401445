"""The route of time series: of nodes, jobs, queues, services and the cluster, over the
last month."""

from math import isnan
from typing import Annotated, Final

from fastapi import APIRouter, Query

from corral.api.errors import RequestInvalid
from corral.api.job_lookup import find_job
from corral.api.job_visibility import sight_of
from corral.api.jobs import Asker, Within
from corral.api.service_lookup import find_service
from corral.domain.ids import NodeId
from corral.domain.time_series import Curve, averaged
from corral.domain.units import HOUR_SECONDS
from corral.domain.world import World
from corral.wire import time_series as answers

router = APIRouter()
CLUSTER: Final = "cluster"
KINDS: Final = ("node:", "job:", "queue:", "service:")


@router.get("/v1/series")
async def series(
    house: Within,
    caller: Asker,
    key: Annotated[str, Query(max_length=300)],
    fields: Annotated[str, Query(max_length=4000)] = "",
    since: float | None = None,
    until: float | None = None,
    points: Annotated[int, Query(ge=1, le=10_000)] = 360,
) -> answers.SeriesView:
    """Return the time series of `key` (cluster, node:N, job:J, queue:Q, service:S)
    from `since` (default: an hour ago) to `until` (default: now). The series has at
    most `points` values, each the mean of its interval. `fields`, separated by commas,
    selects fields."""
    if key != CLUSTER and not key.startswith(KINDS):
        raise RequestInvalid(
            f"`key` is {key[:60]!r}, not cluster, node:NAME, job:ID, queue:NAME or "
            "service:NAME"
        )
    kind, _, name = key.partition(":")
    sight = sight_of(house.control, caller)
    if kind == "job" and not sight.everything:
        await find_job(house.control, name, caller)
    if kind == "service" and not sight.everything:
        await find_service(house.control, sight, name)
    now = house.control.now().wall
    until = now if until is None else until
    since = until - HOUR_SECONDS if since is None else since
    if not since < until:
        raise RequestInvalid(
            "`since` is not before `until`; both are in seconds since 1970"
        )
    field_names = [name for name in fields.split(",") if name]
    curve = Curve()
    if house.series is not None:
        curve = await house.series.read(
            key, since=since, until=until, fields=field_names
        )
    step = (until - since) / points
    if len(curve.times) > points:
        curve = averaged(curve, step)
    return answers.SeriesView(
        key=key,
        times=list(curve.times),
        fields={
            name: [None if isnan(value) else value for value in row]
            for name, row in curve.fields.items()
        },
        pretend=_is_pretend(house.control.world, kind, name),
    )


def _is_pretend(world: World, kind: str, name: str) -> bool:
    """Return whether the GPUs of the node `name` are pretend ones; for other kinds,
    whether any of the cluster's are."""
    if kind == "node" and (node := world.nodes.get(NodeId(name))) is not None:
        return node.inventory.pretend
    return any(node.inventory.pretend for node in world.nodes.values())
