"""The work that a change would lose, printed above the question whether to make the
change."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from corral.boot.clock import SystemClock
from corral.cli import arrays
from corral.cli.head_options import Change
from corral.cli.printing import clean, say
from corral.domain.errors import NotFound
from corral.domain.units import counted, duration_text

if TYPE_CHECKING:
    from corral.client import Client
    from corral.wire import api

MOST_LINES: Final = 5
WAITING: Final = ("QUEUED", "HELD", "SUSPENDED")


def agreed_to_lose(
    client: "Client", jobs: Sequence[str], question: str, common: Change
) -> bool:
    """Print what each job would lose by a change that ends its attempt. Then ask
    whether to make the change, and return the answer.

    Args:
        jobs: ids or names, also of arrays. A job that does not exist is not reported
            here, but by the change itself.
        question: for example "stop train?".
    """
    if common.asks_before_loss:
        for line in _impact_lines(client, jobs):
            say(line, stderr=True)
    return common.agreed(question, destroys=True)


def jobs_on(client: "Client", nodes: Sequence[str]) -> list[str]:
    """Return the ids of the jobs on these nodes, each once. Raises: NotFound."""
    return list(dict.fromkeys(job for node in nodes for job in client.node(node).jobs))


def _impact_lines(client: "Client", jobs: Sequence[str]) -> list[str]:
    now = SystemClock().wall()
    lines = []
    for job in jobs[:MOST_LINES]:
        try:
            found_job = arrays.found(client, job, client.job)
        except NotFound:
            continue
        lines.append(
            array_impact(found_job, now)
            if isinstance(found_job, list)
            else job_impact(found_job, now)
        )
    hidden_count = len(jobs) - MOST_LINES
    return [*lines, f"further jobs: {hidden_count}"] if hidden_count > 0 else lines


def job_impact(job: "api.JobDetail", now: float) -> str:
    """Return for example: train (j3) is RUNNING on 8 GPUs; its last save was 12 min
    ago: at most 12 min of work would be lost. `now` in seconds since 1970."""
    subject = f"{clean(job.name)} ({job.id}) is {job.state}"
    attempt = job.attempts[-1] if job.attempts else None
    began_at = attempt.running_at if attempt is not None else None
    if job.is_over:
        return subject
    if job.state in WAITING or began_at is None:
        return f"{subject}: no work would be lost"
    count = job.shape.nodes * job.shape.gpus_per_node
    gpu_text = f" on {count:g} GPU{'s' if count > 1 else ''}" if count else ""
    if job.service:
        return (
            f"{subject}{gpu_text}, and finishes its requests; {job.service} gets another "
            "replica"
        )
    saves = [save.at for save in job.checkpoints if not save.quarantined]
    lost_work_text = duration_text(max(0.0, now - max([began_at, *saves])))
    if not saves:
        return (
            f"{subject}{gpu_text} and has no save: {lost_work_text} of work would be "
            "lost"
        )
    ago = duration_text(max(0.0, now - saves[-1]))
    return (
        f"{subject}{gpu_text}; its last save was {ago} ago: at most {lost_work_text} "
        "of work would be lost"
    )


def array_impact(jobs: "Sequence[api.JobView]", now: float) -> str:
    """Return for example: sweep has 200 unfinished jobs; 40 of them run, the longest
    for 3 h."""
    unfinished = [job for job in jobs if not job.is_over]
    ran = [
        now - (job.started_at or now) for job in unfinished if job.state not in WAITING
    ]
    running = (
        f"; {len(ran)} of them run, the longest for {duration_text(max(ran))}"
        if ran
        else ""
    )
    return (
        f"{clean(arrays.name_of(jobs))} has "
        f"{counted(len(unfinished), 'unfinished job')}{running}"
    )
