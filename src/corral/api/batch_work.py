"""Work of a leading head for batches: it checks their files, submits their jobs, and notes
the ends of these."""

import asyncio
import json
import subprocess
import sys
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Final

from corral.api.app_state import House
from corral.api.auth import Caller
from corral.api.submission import admitted, specs_of
from corral.domain.batch import Batch, BatchFault, BatchStatus
from corral.domain.errors import CorralError, Refusal, Trouble
from corral.domain.ids import JobId, ServiceName, TokenId, UserName
from corral.domain.job_states import JobState
from corral.domain.requests import Cancel
from corral.domain.service import Service
from corral.domain.users import Role
from corral.ports.log import HeadLogger
from corral.serve.batch_spec import BatchJob, name_of_batch, spec_of_batch
from corral.wire import api

LOOK_SECONDS: Final = 1.0
CHECK_MODULE: Final = "corral.serve.batch_check"
log = HeadLogger("corral.api")


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckedFile:
    """Result of the check of a file: faults, or the number of lines and the model
    of the first one, which is at `first_line`."""

    faults: tuple[BatchFault, ...] = ()
    lines: int = 0
    model: str | None = None
    first_line: int = 1


async def keep_batches(house: House) -> None:
    """Work on all batches until cancelled. A failure of the store is retried."""
    desk = house.batches
    while True:
        with suppress(TimeoutError):
            async with asyncio.timeout(LOOK_SECONDS):
                await desk.changed.wait()
        desk.changed.clear()
        try:
            batches = await desk.open()
        except Trouble as error:
            log.warning("batches_not_read", error=error.message)
            continue
        for batch in batches:
            try:
                await _advance(house, batch)
            except (Trouble, Refusal, OSError, ValueError) as error:
                # the others go on
                log.warning("batch_not_advanced", batch=batch.id, error=str(error))


async def _advance(house: House, batch: Batch) -> None:
    """Do what the batch needs next. Raises: Trouble, OSError."""
    if batch.status is BatchStatus.VALIDATING:
        await _begin(house, batch)
        return
    assert batch.job is not None
    job = house.control.world.jobs.get(batch.job) or await house.control.store.job(
        batch.job
    )
    if job is None or job.is_final:
        state = JobState.CANCELLED if job is None else job.state
        reason = "" if job is None else job.reason
        now = house.control.clock.wall()
        ended = await house.batches.change(
            batch, lambda present: _ended(present, state, reason, now)
        )
        house.control.traffic.batches.drop(ended.id)
    elif batch.status is BatchStatus.CANCELLING and job.state != JobState.STOPPING:
        await cancel_job(house, batch.job, batch.owner)


def _ended(batch: Batch, state: JobState, reason: str, now: float) -> Batch:
    """Return the batch after the end of its job."""
    status, faults = BatchStatus.COMPLETED, batch.faults
    if state == JobState.CANCELLED or batch.status is BatchStatus.CANCELLING:
        status = BatchStatus.CANCELLED
    elif state != JobState.DONE:
        status = BatchStatus.FAILED
        faults = (BatchFault("job_failed", f"the job {batch.job} failed: {reason}"),)
    elif batch.counts.expired:
        status = BatchStatus.EXPIRED
    return replace(batch, status=status, faults=faults, ended_at=now)


async def cancel_job(house: House, job: JobId, owner: UserName) -> None:
    """Cancel the job of a batch, unless it is over. Raises: Trouble."""
    try:
        await house.control.ask(Cancel(job=job), by=owner)
    except Refusal as error:
        log.info("batch_not_cancelled", job=job, error=error.message)


# -- the beginning of a batch --------------------------------------------------------------------


async def _begin(house: House, batch: Batch) -> None:
    """Check the file and submit the job, or say why the batch is not valid. Raises:
    Trouble, OSError."""
    desk = house.batches
    checked = desk.checked.get(batch.id)
    if checked is None:
        checked = await _check(house, batch)
        desk.checked[batch.id] = checked
    service = _service_of(house, batch, checked.model)
    faults = checked.faults
    if service is None and not faults:
        faults = (_no_model(batch, checked),)
    if service is None or faults:
        await _fail(house, batch, faults)
        return
    gateway_url = house.settings.gateway_url()
    if not gateway_url:
        return  # it starts
    model = checked.model or service.spec.models[0]
    begun = replace(
        batch,
        service=service.name,
        model=model,
        counts=replace(batch.counts, total=checked.lines),
    )
    try:
        job = await _submitted(house, begun, gateway_url)
    except Refusal as error:
        await _fail(house, batch, (BatchFault(error.code, _text_of(error)),))
        return
    now = house.control.clock.wall()

    def begin(present: Batch) -> Batch:
        status = present.status
        if status is BatchStatus.VALIDATING:
            status = BatchStatus.IN_PROGRESS
        return replace(
            begun,
            status=status,
            job=job,
            in_progress_at=now,
            cancelling_at=present.cancelling_at,
        )

    present = await desk.change(batch, begin)
    if present.status is not BatchStatus.IN_PROGRESS:
        await cancel_job(house, job, batch.owner)


async def _fail(house: House, batch: Batch, faults: Iterable[BatchFault]) -> None:
    now = house.control.clock.wall()

    def fail(present: Batch) -> Batch:
        return replace(
            present, status=BatchStatus.FAILED, faults=tuple(faults), ended_at=now
        )

    await house.batches.change(batch, fail)


async def _check(house: House, batch: Batch) -> CheckedFile:
    """Check the file in another process. Raises: Trouble."""
    words = ["--endpoint", batch.endpoint] if batch.endpoint else []
    named = house.control.world.services.get(batch.service)
    for name in () if named is None else (*named.spec.models, named.name):
        words += ["--model", name]
    path = str(house.files.path(batch.input_file))
    command = [sys.executable, "-P", "-m", CHECK_MODULE, path, *words]
    checked = await asyncio.to_thread(
        subprocess.run,
        command,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        check=False,
    )
    if checked.returncode:
        complaint = checked.stderr.decode(errors="replace").strip()
        last = complaint.rpartition("\n")[2]
        if not house.files.path(batch.input_file).exists():
            fault = BatchFault("file_not_found", "the input file was removed")
            return CheckedFile(faults=(fault,))
        raise Trouble(f"the file of {batch.id} cannot be checked: {last[:200]}")
    answer = json.loads(checked.stdout)
    faults = tuple(BatchFault(**fault) for fault in answer.pop("faults", ()))
    return CheckedFile(faults=faults, **answer)


def _service_of(house: House, batch: Batch, model: str | None) -> Service | None:
    """Return the service that answers the batch; None without one."""
    services = house.control.world.services
    if batch.service:
        return services.get(batch.service)
    if model is None:
        return None
    for name in (model, model.rpartition("@")[0]):
        for service in services.values():
            if name in service.spec.models:
                return service
        if ServiceName(name) in services:
            return services[ServiceName(name)]
    return None


def _no_model(batch: Batch, checked: CheckedFile) -> BatchFault:
    if batch.service:
        text = f"the service {batch.service} does not exist"
        return BatchFault("model_not_found", text)
    return BatchFault(
        "model_not_found",
        f"the model {checked.model!r} does not exist",
        checked.first_line,
        "body.model",
    )


async def _submitted(house: House, batch: Batch, gateway_url: str) -> JobId:
    """Submit the job of a batch, once, as its owner. Raises: Refusal, Trouble."""
    control = house.control
    jobs = await control.submitted(batch.id, by=batch.owner)
    if jobs is None:
        job = BatchJob(
            service=batch.service,
            model=batch.model,
            lines=batch.counts.total,
            folder=batch.id.removeprefix("batch_"),
            deadline=batch.deadline,
            concurrency=batch.concurrency,
            batch=batch.id,
        )
        spec = spec_of_batch(
            job,
            name=name_of_batch(batch.name),
            gateway_url=gateway_url,
            queue=batch.queue,
            checkpoint=batch.checkpoint,
        )
        owner = await _owner(house, batch.owner)
        body = api.JobSubmit(specs=[spec], key=batch.id)
        specs = await specs_of(house, body, owner)
        with await admitted(house, owner, specs):
            jobs = await control.submit(specs, key=batch.id, by=batch.owner)
    return jobs[0].id


async def _owner(house: House, name: UserName) -> Caller:
    """Return the owner of a batch as a caller. Raises: Refusal, StoreTrouble."""
    users = {user.name: user for user in await house.control.store.users()}
    user = users.get(name)
    if user is None or user.disabled or user.role is Role.VIEWER:
        raise Refusal(
            f"the user {name} may not submit jobs",
            hint=f"ask an admin to run: corral user set {name} --role user",
        )
    return Caller(
        name=user.name,
        role=user.role,
        token=TokenId(""),
        sha256="",
        limits=user.limits,
        jobs_after=user.jobs_after,
        operated=house.control.world.queues.operated_by(user.name),
        key=("POST", "/v1/jobs"),
    )


def _text_of(error: CorralError) -> str:
    """Return a refusal as one sentence."""
    return f"{error.message}; {error.hint}" if error.hint else error.message
