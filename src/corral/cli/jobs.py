"""The commands show, why, stop, suspend and resume."""

from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from corral.boot.clock import SystemClock
from corral.cli import arrays, services
from corral.cli.batch_changes import change_each
from corral.cli.checkpoints import show_checkpoints
from corral.cli.head_options import Change, Common, declined
from corral.cli.job_changes import change_all, check_named, go_back
from corral.cli.job_row import ends_text, time_of
from corral.cli.option_types import SignalName, WholeNumber
from corral.cli.outputs import outputs_text
from corral.cli.printing import (
    age_text,
    clean,
    clock_text,
    print_json,
    say,
    show_pairs,
    show_table,
    state,
    table,
)
from corral.cli.submission_plan import (
    forms_text,
    limit_text,
    place_text,
    seat_text,
    signal_text,
)

if TYPE_CHECKING:
    from rich.text import Text

    from corral.wire import api

_Flag = Annotated[bool, Parameter(negative="", show_default=False)]


def show(job: str, /, *, common: Common = Common()) -> None:  # noqa: B008 - frozen
    """Show one job with its attempts, receipts and checkpoints; or a whole array, one
    line for each index; or a service.

    Args:
        job: Id of a job, or the name of the newest job of this name; for an array, all
            its jobs are shown, and for a service its replicas.
    """
    from corral.wire.service_answers import ServiceView

    with common.client() as client:
        found_job = services.found_or_service(client, job, client.job)
        if isinstance(found_job, list):
            arrays.show_array(found_job, SystemClock().wall(), common)
        elif isinstance(found_job, ServiceView):
            services.show_found(found_job, common)
        elif common.json:
            print_json(found_job)
        else:
            _show_one(found_job)
            # Last, since it asks the nodes: what the head knows is on the screen
            # already.
            if written := outputs_text(client, found_job):
                say()
                show_pairs([("outputs", written)])


def _show_one(job: "api.JobDetail") -> None:
    show_pairs(_job_detail_rows(job))
    _show_attempts(job.attempts, SystemClock().wall())
    _show_receipts(job.receipts)
    if job.checkpoints:
        say()
        show_checkpoints([("", save) for save in job.checkpoints])


def _job_detail_rows(job: "api.JobDetail") -> "list[tuple[str, str | Text | None]]":
    beat = job.progress
    of = f" of {beat.until}" if beat and beat.until else ""
    loss = f", loss {beat.loss:.4f}" if beat and beat.loss is not None else ""
    if beat and beat.nan_since is not None:
        loss = f", loss not a number since step {beat.nan_since}"
    return [
        ("job", f"{job.name} ({job.id})"),
        ("state", state(job.state)),
        ("reason", job.reason),
        ("exit code", "" if job.exit_code is None else str(job.exit_code)),
        ("owner", f"{job.owner}, queue {job.queue}, priority {job.priority}"),
        ("starts from", f"the save {job.origin}" if job.origin else ""),
        ("asks for", forms_text(job.forms, job.shape)),
        ("place", place_text(job)),
        ("nodes", ", ".join(job.nodes)),
        ("GPUs", "pretend: its ranks run on the CPU" if _uses_pretend(job) else ""),
        ("image", _image_text(job)),
        ("progress", f"step {beat.step}{of}{loss}" if beat else ""),
        ("ends", ends_text(beat)),
        ("ran", age_text(time_of(job, SystemClock().wall())) if job.started_at else ""),
        ("bound by", bound_text(job)),
        ("idle", _idle_text(job)),
        ("time limit", limit_text(job)),
        ("signal", signal_text(job.warned)),
        ("submitted", clock_text(job.submitted_at)),
        ("begins", clock_text(job.begins_at) if job.begins_at else ""),
        ("starts by", clock_text(job.starts_by) if job.starts_by else ""),
        ("started", clock_text(job.started_at) if job.started_at else ""),
        ("ended", clock_text(job.ended_at) if job.ended_at else ""),
        ("retries", _format_retries(job)),
        ("next", clean(job.next)),
        ("workdir", job.workdir[:12] if job.workdir else ""),
        ("run", job.run),
    ]


def _uses_pretend(job: "api.JobDetail") -> bool:
    return job.pretend and job.shape.gpus_per_node > 0


def _image_text(job: "api.JobDetail") -> str:
    """Return the image of the job, and the digests of the images that its newest
    attempt used."""
    digests = job.attempts[-1].images if job.attempts else []
    return clean(f"{job.image or ''} {', '.join(digests)}".strip())


def _idle_text(job: "api.JobDetail") -> str:
    """Return since when the running job holds idle GPUs, as text; "" otherwise."""
    idle_since = job.attempts[-1].idle_since if job.attempts else None
    mark = " (pretend)" * job.pretend
    return (
        f"since {clock_text(idle_since)}{mark}"
        if idle_since and job.state == "RUNNING"
        else ""
    )


def bound_text(job: "api.JobDetail") -> str:
    """Return the bottleneck of the job, and what to try."""
    bottleneck_view = job.bottleneck
    return (
        f"{bottleneck_view.text}; try {bottleneck_view.advice}"
        if bottleneck_view is not None
        else ""
    )


def _format_retries(job: "api.JobDetail") -> str:
    if not job.infra_retries and not job.user_retries:
        return ""
    return (
        f"{job.infra_retries} after cluster faults, {job.user_retries} after its own "
        "failures"
    )


def _show_attempts(attempts: "list[api.AttemptView]", now: float) -> None:
    """Print a table of the attempts. TIME of a running attempt is the time until `now`,
    in seconds since 1970."""
    if not attempts:
        return
    say()
    rows = table(
        "ATTEMPT",
        "NODES",
        "FROM STEP",
        "TO STEP",
        "TIME",
        "CAUSE",
        "END",
        right=("FROM STEP", "TO STEP", "TIME"),
    )
    for attempt in attempts:
        spent = (
            now if attempt.ended_at is None else attempt.ended_at
        ) - attempt.placed_at
        exit_code = (
            f"exit code {attempt.exit_code}" if attempt.exit_code is not None else ""
        )
        end_text = (
            ": ".join(filter(None, (attempt.culprit, attempt.evidence))) or exit_code
        )
        rows.add_row(
            str(attempt.number),
            ", ".join(seat_text(seat) for seat in attempt.seats)
            + (", in place" if attempt.in_place else ""),
            _format_optional_int(attempt.resume_step),
            _format_optional_int(attempt.last_step),
            age_text(spent),
            "" if attempt.cause == "none" else attempt.cause,
            clean(end_text),
        )
    show_table(rows)


def _show_receipts(receipts: "list[api.ReceiptView]") -> None:
    if receipts:
        say()
    for receipt in receipts:
        say(_receipt_text(receipt))


def _receipt_text(one: "api.ReceiptView") -> str:
    when = f"{clock_text(one.seen_at)} {one.kind} of attempt {one.attempt}"
    return f"receipt: {when}: {clean(one.text)}"


def _format_optional_int(value: int | None) -> str:
    return "" if value is None else str(value)


def why(job: str, /, *, common: Common = Common()) -> None:  # noqa: B008 - frozen
    """Explain the state of a job, and what would change it.

    Args:
        job: Id or name of a job; if several jobs have the name, the newest one. For an
            array, each group of similar jobs is explained once; for a service, each
            replica that is not ready.
    """
    from corral.wire.service_answers import ServiceView

    with common.client() as client:
        answer = services.found_or_service(client, job, client.why)
        if isinstance(answer, list):
            arrays.why_array(client, answer, common)
            return
        if isinstance(answer, ServiceView):
            services.why_service(client, answer, common)
            return
    if common.json:
        print_json(answer)
        return
    say(
        f"{answer.name} is {answer.state}"
        + (f": {clean(answer.reason)}" if answer.reason else "")
    )
    _say_failed(answer)
    _say_hung(answer)
    arrays.say_sooner(answer)
    for receipt in answer.receipts:
        say(_receipt_text(receipt))


def _say_failed(found: "api.Why") -> None:
    """Print why the newest attempt failed, unless the state has changed since."""
    failed = found.failed
    if failed is None or found.state in ("RUNNING", "DONE", "CANCELLED"):
        return
    say(
        f"  attempt {failed.attempt} failed: {failed.failure}, {failed.culprit}: {failed.evidence}"
    )
    if failed.quote:
        say(f"  its log: {clean(failed.quote)}")
    if failed.failed_at:
        verb = "stood" if failed.failure == "hang" else "raised"
        say(f"  {verb} at: {clean(failed.failed_at)}")
    say(f"  to do: {failed.next}")


def _say_hung(found: "api.Why") -> None:
    """Print how the last attempt hung, if another one has begun since."""
    if found.hang and found.state in ("QUEUED", "HELD", "STARTING", "RUNNING"):
        say(f"  {clean(found.hang)}")


def stop(
    *jobs: str,
    signal: SignalName | None = None,
    common: Change = Change(),  # noqa: B008 - frozen
) -> int:
    """Cancel jobs, or send them a signal.

    Args:
        jobs: Ids or names; the name of an array means all its jobs.
        signal: Instead of cancelling the jobs, send this signal to their ranks, for
            example USR1.
    """
    if signal is None:
        return change_all(jobs, common, "stop", "cancel")
    return _signal_jobs(jobs, common, signal)


def suspend(*jobs: str, common: Change = Change()) -> int:  # noqa: B008 - frozen
    """Save and stop jobs, to be resumed later.

    Args:
        jobs: Ids or names; the name of an array means all its jobs.
    """
    return change_all(jobs, common, "suspend", "suspend")


def resume(
    *jobs: str,
    step: WholeNumber | None = None,
    common: Change = Change(),  # noqa: B008 - frozen
) -> int:
    """Resume suspended or held jobs.

    Args:
        jobs: Ids or names; the name of an array means all its jobs.
        step: Go back to the checkpoint of this step of the one named job; its newer
            checkpoints are not used any more.
    """
    if step is None:
        return change_all(jobs, common, "resume", "resume")
    return go_back(jobs, step, common)


def _signal_jobs(jobs: tuple[str, ...], common: Change, signal: str) -> int:
    """Send the signal to each job. Return the exit code. Raises: Usage, Conflict."""
    check_named(jobs, f"send {signal} to", f"stop --signal {signal}")

    def say_sent(job: "api.JobDetail") -> None:
        say(f"{signal} was sent to {job.name} ({job.id}); the job is not cancelled")

    with common.client() as client:
        if not common.agreed(f"send {signal} to {', '.join(jobs)}?", destroys=True):
            raise declined()
        job_details, code = change_each(
            jobs,
            lambda job: arrays.members(client, job),
            lambda id: client.signal(id, signal),
            say_sent,
            as_json=common.json,
        )
    if common.json and job_details:
        document = (
            job_details[0].model_dump(mode="json") if len(job_details) == 1 else None
        )
        print_json(
            document or {"jobs": [job.model_dump(mode="json") for job in job_details]}
        )
    return code
