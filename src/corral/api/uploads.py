"""Routes of workdir snapshots."""

from fastapi import APIRouter, Request
from starlette.responses import FileResponse, Response

from corral.api.jobs import Asker, Within
from corral.api.trust import needs_snapshot
from corral.domain.errors import Forbidden
from corral.domain.quota import Quota
from corral.domain.units import size_text
from corral.wire import api

router = APIRouter()


@router.head("/v1/snapshots/{sha256}")
async def has_snapshot(sha256: str, house: Within) -> Response:
    size = house.snapshots.asked(sha256)
    return Response(headers={"X-Size-Bytes": str(size)})


@router.put("/v1/snapshots/{sha256}")
async def put_snapshot(sha256: str, request: Request, house: Within, caller: Asker) -> api.Kept:
    """The body is the tar.gz whose SHA-256 the path says. Again is harmless.

    It counts for who has sent it first, until no job runs in it any more.
    """
    store, snapshots, clock = house.control.store, house.snapshots, house.control.clock
    if snapshots.has(sha256):
        return api.Kept(sha256=sha256, size_bytes=snapshots.asked(sha256))
    quotas = house.quotas.of_caller(caller)
    used = (await store.holdings(caller.name)).upload_bytes
    left = max(1, quotas.limit(Quota.UPLOAD_BYTES) - used)
    declared = request.headers.get("content-length")  # the gate has checked that it is a number
    asked = min(snapshots.most_bytes, left) if declared is None else int(declared)
    house.disk.check(house.settings.snapshots, "this upload", int(declared or 0))
    with house.quotas.taking(quotas, Quota.UPLOAD_BYTES, used=used, asked=asked):
        size = await snapshots.put(sha256, request.stream(), clock.fresh_id(), most_bytes=asked)
        entry = caller.entry(clock.wall(), on=sha256, detail=size_text(size))
        await store.add_upload(sha256, size, by=caller.name, at=clock.wall(), entry=entry)
    return api.Kept(sha256=sha256, size_bytes=size)


@router.get("/v1/agents/snapshots/{sha256}")
async def agent_snapshot(sha256: str, house: Within, caller: Asker) -> FileResponse:
    """A workdir, for a node that has an attempt with it."""
    assert caller.node is not None
    if not needs_snapshot(house.control.world, caller.node, sha256):
        raise Forbidden(f"no attempt on node {caller.node} has this workdir")
    return FileResponse(house.snapshots.path(sha256), media_type="application/gzip")
