"""Listing of jobs: thousands of rows in one answer, without blocking agents'
messages."""

import asyncio
import zlib
from collections.abc import Sequence
from typing import Final

from starlette.requests import Request
from starlette.responses import Response

from corral.api.job_visibility import CallerView
from corral.api.views import held_gpus, running_since
from corral.control import Control
from corral.domain.job import Job
from corral.domain.job_summary import ListedJob
from corral.wire import listing_rows

ROWS_AT_ONCE: Final = 250
LEAST_PACKED_BYTES: Final = 16_384
QUICKLY: Final = 1  # rows are alike: a twentieth is left of them at the least effort
_GZIP: Final = 16 + zlib.MAX_WBITS


async def listing(
    control: Control,
    jobs: Sequence[Job | ListedJob],
    request: Request,
    sight: CallerView,
) -> Response:
    """Return the list of the jobs in their current state. Unfinished jobs are taken
    from the head's memory."""
    encoded_chunks = []
    for start_index in range(0, len(jobs), ROWS_AT_ONCE):
        job_batch = jobs[start_index : start_index + ROWS_AT_ONCE]
        encoded_chunks.append(
            listing_rows.encode(
                [_listing_row(control, job, sight) for job in job_batch]
            )
        )
        await asyncio.sleep(0)
    return await packed_answer(listing_rows.jobs_body(encoded_chunks), request)


async def packed_answer(body: bytes, request: Request) -> Response:
    """Return the JSON as an answer, compressed if it is large and the client accepts
    gzip."""
    headers = {"Vary": "Accept-Encoding"}
    if len(body) >= LEAST_PACKED_BYTES and "gzip" in request.headers.get(
        "accept-encoding", ""
    ):
        body = await asyncio.to_thread(_gzip_body, body)
        headers["Content-Encoding"] = "gzip"
    return Response(body, headers=headers, media_type="application/json")


def _listing_row(
    control: Control, job: Job | ListedJob, sight: CallerView
) -> listing_rows.JobRow:
    live_job = control.world.jobs.get(job.id)
    if live_job is None:  # it is over: nothing is known of it but what is recorded
        return listing_rows.job_row(
            job, reason=sight.text(job.reason), reason_code=job.reason_code
        )
    reason, attempt = control.reason(live_job), control.world.attempts.get(job.id)
    sentence = sight.text(reason.sentence)
    if attempt is None:  # most of those that wait
        return listing_rows.job_row(live_job, reason=sentence, reason_code=reason.code)
    return listing_rows.job_row(
        live_job,
        reason=sentence,
        reason_code=reason.code,
        nodes=attempt.nodes,
        progress=None if live_job.is_final else control.progress(live_job),
        held_gpus=held_gpus(live_job, attempt),
        running_since=running_since(live_job, attempt),
    )


def _gzip_body(body: bytes) -> bytes:
    packer = zlib.compressobj(QUICKLY, zlib.DEFLATED, _GZIP)
    return packer.compress(body) + packer.flush()
