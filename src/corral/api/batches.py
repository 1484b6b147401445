"""Routes of batches, as OpenAI's API has them, and those with which the job of a batch
gets its input and delivers its results."""

from dataclasses import replace
from typing import Annotated, Final, Literal

from fastapi import APIRouter, Query, Request
from starlette.responses import FileResponse

from corral.api.app_state import House
from corral.api.auth import Caller
from corral.api.batch_work import cancel_job
from corral.api.errors import RequestInvalid
from corral.api.jobs import Asker, Within
from corral.api.stored_files import content_of, page_of, store_result, visible_file
from corral.domain.batch import (
    KEPT_SECONDS,
    Batch,
    BatchId,
    BatchStatus,
    FileId,
    FilePurpose,
    StoredFile,
)
from corral.domain.errors import Conflict, Forbidden, NotFound
from corral.domain.ids import QueueName, ServiceName
from corral.domain.job_states import StopWhy
from corral.domain.users import Role
from corral.route.batch_demand import BatchWork
from corral.serve.batch_file import URLS
from corral.wire import openai_batches as wire

router = APIRouter()
BATCHES_PATH: Final = "/v1/batches"
MOST_LISTED: Final = 100
FINISHED: Final = "finished"  # state of a program that has an answer to each line


@router.post(BATCHES_PATH)
async def create_batch(
    body: wire.BatchCreate, house: Within, caller: Asker
) -> wire.BatchObject:
    """Create a batch of the requests in a file. It is checked after the answer: see
    `status` and `errors`."""
    window_seconds = body.window_seconds
    extras = body.corral
    if body.endpoint not in URLS and not (extras.service and not body.endpoint):
        raise RequestInvalid(
            f"endpoint {body.endpoint[:60]!r} is not supported",
            hint=f"use one of: {', '.join(URLS)}",
        )
    file = await visible_file(house, caller, body.input_file_id)
    if file.purpose is not FilePurpose.BATCH:
        raise RequestInvalid(
            f"the file {file.id} has the purpose {file.purpose}",
            hint="upload the requests with the purpose: batch",
        )
    await _check_owner(house, caller)
    now = house.control.clock.wall()
    batch = Batch(
        id=BatchId(f"batch_{house.control.clock.fresh_id()}"),
        owner=caller.name,
        name=extras.name or file.name,
        input_file=file.id,
        endpoint=body.endpoint,
        window=body.completion_window,
        created_at=now,
        deadline=now + window_seconds,
        metadata=tuple((body.metadata or {}).items()),
        queue=None if extras.queue is None else QueueName(extras.queue),
        concurrency=extras.concurrency,
        checkpoint=extras.checkpoint,
        service=ServiceName(extras.service or ""),
    )
    await house.batches.add(batch, entry=caller.entry(now, on=batch.id))
    return wire.BatchObject.of(batch)


async def _check_owner(house: House, caller: Caller) -> None:
    """Refuse a caller whose jobs could not call a service. Raises: Forbidden."""
    users = await house.control.store.users()
    if any(user.name == caller.name and user.role is Role.VIEWER for user in users):
        raise Forbidden(
            f"{caller.name} is a viewer, and viewers may not submit batches",
            hint=f"ask an admin to run: corral user set {caller.name} --role user",
        )


@router.get(BATCHES_PATH)
async def list_batches(
    house: Within,
    caller: Asker,
    after: Annotated[str | None, Query(max_length=100)] = None,
    limit: Annotated[int, Query(ge=1, le=MOST_LISTED)] = 20,
) -> wire.BatchList:
    """Return the caller's batches, the newest first."""
    rows = await house.control.store.batches(owner=caller.name)
    page, has_more = page_of(rows, [row.id for row in rows], after, limit)
    data = [wire.BatchObject.of(house.batches.newest(row)) for row in page]
    return wire.BatchList(
        data=data,
        has_more=has_more,
        first_id=data[0].id if data else None,
        last_id=data[-1].id if data else None,
    )


@router.get("/v1/batches/{batch}")
async def retrieve_batch(batch: str, house: Within, caller: Asker) -> wire.BatchObject:
    return wire.BatchObject.of(await _visible_batch(house, caller, batch))


async def _visible_batch(house: House, caller: Caller, id: str) -> Batch:
    """Return a batch that the caller may see. Raises: NotFound."""
    batch = await house.batches.find(id)
    if batch is None or not caller.may(owner=batch.owner):
        raise NotFound("batch", id[:100])
    return batch


@router.post("/v1/batches/{batch}/cancel")
async def cancel_batch(batch: str, house: Within, caller: Asker) -> wire.BatchObject:
    """Cancel a batch. What it has answered so far is in its output file soon."""
    present = await _visible_batch(house, caller, batch)
    if present.status.is_over:
        raise Conflict(
            f"the batch {present.id} is {present.status} and cannot be cancelled",
            hint="see its output_file_id and its error_file_id",
        )
    now = house.control.clock.wall()

    def cancel(batch: Batch) -> Batch:
        if batch.job is None:
            status, ended_at = BatchStatus.CANCELLED, now
            return replace(batch, status=status, cancelling_at=now, ended_at=ended_at)
        return replace(
            batch,
            status=BatchStatus.CANCELLING,
            cancelling_at=batch.cancelling_at or now,
        )

    entry = caller.entry(now, on=present.id)
    changed = await house.batches.change(present, cancel, entry=entry)
    if changed.job is not None and not changed.status.is_over:
        await cancel_job(house, changed.job, changed.owner)
    return wire.BatchObject.of(changed)


# -- for the job of the batch --------------------------------------------------------------------


async def _batch_of_job(house: House, caller: Caller, id: str) -> Batch:
    """Return the batch whose job calls. Raises: NotFound, Forbidden."""
    batch = await house.batches.find(id)
    if batch is None:
        raise NotFound("batch", id[:100])
    if caller.job is None or caller.job.attempt[0] != batch.job:
        raise Forbidden(
            "only the job of a batch may do this",
            hint=f"see the batch: corral batch show {batch.job or ''}",
        )
    return batch


@router.get("/v1/batches/{batch}/input")
async def batch_input(batch: str, house: Within, caller: Asker) -> FileResponse:
    """Return the requests of a batch to its job."""
    present = await _batch_of_job(house, caller, batch)
    file = await house.control.store.file(present.input_file)
    if file is None:
        raise NotFound("file", present.input_file)
    return content_of(house, file)


@router.post("/v1/batches/{batch}/progress")
async def report_progress(
    batch: str, body: wire.BatchProgressBody, house: Within, caller: Asker
) -> wire.BatchProgressTaken:
    """Take the progress of a batch from its job, and return the batch's status."""
    present = await _batch_of_job(house, caller, batch)
    house.batches.count(present, body.counts)
    house.control.traffic.batches.take(
        present.id,
        present.service,
        BatchWork(
            tokens_left=body.tokens_left,
            seconds_left=present.deadline - house.control.clock.wall(),
            tokens_per_second=body.present_tokens_per_second,
            is_behind=body.is_behind,
        ),
        house.control.serving_seconds(),
    )
    if _is_being_cancelled(house, present):
        # by its job: what it has answered is delivered all the same
        present = await _note_cancel(house, present)
    if body.state == FINISHED and present.status is BatchStatus.IN_PROGRESS:
        present = await _finalize(house, present)
    return wire.BatchProgressTaken(status=present.status)


def _is_being_cancelled(house: House, batch: Batch) -> bool:
    job = None if batch.job is None else house.control.world.jobs.get(batch.job)
    is_open = batch.status is BatchStatus.IN_PROGRESS
    return is_open and job is not None and job.why is StopWhy.CANCEL


async def _note_cancel(house: House, batch: Batch) -> Batch:
    now = house.control.clock.wall()

    def cancel(present: Batch) -> Batch:
        at = present.cancelling_at or now
        return replace(present, status=BatchStatus.CANCELLING, cancelling_at=at)

    return await house.batches.change(batch, cancel)


async def _finalize(house: House, batch: Batch) -> Batch:
    now = house.control.clock.wall()

    def finalize(present: Batch) -> Batch:
        status = present.status
        if status is BatchStatus.IN_PROGRESS:
            status = BatchStatus.FINALIZING
        at = present.finalizing_at or now
        return replace(present, status=status, finalizing_at=at)

    return await house.batches.change(batch, finalize)


@router.put("/v1/batches/{batch}/results/{kind}")
async def put_result(
    batch: str,
    kind: Literal["output", "error"],
    request: Request,
    house: Within,
    caller: Asker,
) -> wire.FileObject:
    """Store a result of a batch from its job. The same again replaces it."""
    present = await _batch_of_job(house, caller, batch)
    now = house.control.clock.wall()
    file = StoredFile(
        id=FileId(f"file-{present.id.removeprefix('batch_')}-{kind}"),
        owner=present.owner,
        name=f"{present.id}_{kind}.jsonl",
        purpose=FilePurpose.OUTPUT,
        size_bytes=0,
        created_at=now,
        expires_at=now + KEPT_SECONDS,
    )
    stored = await store_result(house, caller, request, file)

    def deliver(batch: Batch) -> Batch:
        if kind == "output":
            return replace(batch, output_file=stored.id)
        return replace(batch, error_file=stored.id)

    await house.batches.change(present, deliver)
    return wire.FileObject.of(stored)
