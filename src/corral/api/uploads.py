"""Routes of workdir snapshots."""

import asyncio
from collections.abc import AsyncIterator
from typing import Final

from fastapi import APIRouter, Request
from starlette.responses import FileResponse, Response

from corral.api.errors import TooSlow
from corral.api.jobs import Asker, Within
from corral.api.node_trust import needs_snapshot
from corral.domain.errors import Forbidden
from corral.domain.quota import Quota
from corral.domain.units import size_text
from corral.wire import api

UPLOAD_SECONDS: Final = 60.0  # for an upload that sends nothing
UPLOAD_BYTES_PER_SECOND: Final = 32 * 1024  # on average, beyond that
router = APIRouter()


@router.head("/v1/snapshots/{sha256}")
async def has_snapshot(sha256: str, house: Within) -> Response:
    size = house.snapshots.asked(sha256)
    return Response(headers={"X-Size-Bytes": str(size)})


@router.put("/v1/snapshots/{sha256}")
async def put_snapshot(
    sha256: str, request: Request, house: Within, caller: Asker
) -> api.KeptSnapshot:
    """Store the snapshot in the body, a tar.gz file whose SHA-256 is in the path. If
    the snapshot is stored already, nothing changes.

    The snapshot counts toward the quota of the user who has sent it first, until no job
    uses it any more.
    """
    store, snapshots, clock = house.control.store, house.snapshots, house.control.clock
    if snapshots.has(sha256):
        return api.KeptSnapshot(sha256=sha256, size_bytes=snapshots.asked(sha256))
    quotas = house.quotas.of_caller(caller)
    used_bytes = (await store.holdings(caller.name)).upload_bytes
    remaining_bytes = max(1, quotas.limit(Quota.UPLOAD_BYTES) - used_bytes)
    # the gate has checked that it is a number
    declared = request.headers.get("content-length")
    expected_bytes = (
        min(snapshots.most_bytes, remaining_bytes)
        if declared is None
        else int(declared)
    )
    house.disk.check(house.settings.snapshots, "this upload", int(declared or 0))
    pieces = paced(request.stream())
    with house.quotas.taking(
        quotas, Quota.UPLOAD_BYTES, used=used_bytes, asked=expected_bytes
    ):
        size = await snapshots.put(
            sha256, pieces, clock.fresh_id(), most_bytes=expected_bytes
        )
        entry = caller.entry(clock.wall(), on=sha256, detail=size_text(size))
        await store.add_upload(
            sha256, size, by=caller.name, at=clock.wall(), entry=entry
        )
    return api.KeptSnapshot(sha256=sha256, size_bytes=size)


async def paced(pieces: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """Yield the pieces of a body as they arrive.

    Raises: TooSlow if they arrive too slowly.
    """
    began, received = asyncio.get_running_loop().time(), 0
    while True:
        seconds = upload_seconds(received)
        try:
            async with asyncio.timeout_at(began + seconds):
                piece = await anext(pieces, None)
        except TimeoutError:
            raise TooSlow(
                f"the upload is too slow: {received:,} bytes arrived in {seconds:.0f} s; the limit "
                f"is {UPLOAD_SECONDS:.0f} s, and one second more for each "
                f"{size_text(UPLOAD_BYTES_PER_SECOND)}",
                hint="upload again over a faster network, or list large files of the workdir in "
                ".corralignore",
            ) from None
        if piece is None:
            return
        received += len(piece)
        yield piece


def upload_seconds(received_bytes: int) -> float:
    """Return the seconds since its start in which an upload must have delivered more
    than this number of bytes."""
    return UPLOAD_SECONDS + received_bytes / UPLOAD_BYTES_PER_SECOND


@router.get("/v1/agents/snapshots/{sha256}")
async def agent_snapshot(sha256: str, house: Within, caller: Asker) -> FileResponse:
    """Return the snapshot of a workdir to a node that has an attempt with this workdir."""
    assert caller.node is not None
    if not needs_snapshot(house.control.world, caller.node, sha256):
        raise Forbidden(f"no attempt on node {caller.node} uses this workdir")
    return FileResponse(house.snapshots.path(sha256), media_type="application/gzip")
