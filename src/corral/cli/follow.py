"""Following jobs: prints their events and logs as they arrive, and returns the exit
code at the end."""

import sys
import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from corral.cli import error_output
from corral.cli.head_options import MOST_ROWS, Common
from corral.cli.job_row import time_of
from corral.cli.log_lines import LogLinePrinter
from corral.cli.outputs import note_outputs
from corral.cli.printing import note, print_json
from corral.domain.errors import CorralError
from corral.domain.job_states import FINAL, MOVES, JobEvent, JobState
from corral.domain.units import duration_text

if TYPE_CHECKING:
    from corral.client import Client
    from corral.wire import api

LAST_EVENTS_SECONDS = 2.0
# The retry, or the last line, says why a job failed or was cancelled: it is printed
# once.
_ENDS = {
    event for (_, event), state in MOVES.items() if state in FINAL - {JobState.DONE}
}
ENDS = frozenset({JobEvent.FINISHED, *_ENDS})
FAILURES = frozenset({JobEvent.RANKS_FAILED, JobEvent.NODE_LOST})
SAID_ELSEWHERE = frozenset({JobEvent.RANKS_FAILED, *_ENDS})
SAID_ELSEWHERE -= {JobEvent.ASKED_CANCEL}  # of a job that runs it says who has asked
MOST_TOLD = 10  # failures of one submission that are printed one by one


def follow_one(client: "Client", job: "api.JobView", common: Common) -> int:
    """Print the logs and events of one job until the job is over, and return the exit
    code. Ctrl-C ends the output, and the job continues."""
    # with --json stdout is for the one answer
    output_stream = sys.stderr if common.json else sys.stdout
    ranks = client.job(job.id)
    lines = LogLinePrinter(
        output_stream, label=ranks.per == "gpu" or ranks.shape.nodes > 1
    )
    order = _OutputOrder()
    events = threading.Thread(
        target=_tell_events, args=(common, job.id, order), daemon=True
    )
    try:
        events.start()
        for piece in client.logs(job.id, follow=True):
            order.has_begun.wait(LAST_EVENTS_SECONDS)
            lines.write(piece)
        lines.finish()
        order.is_printed.set()
        events.join(LAST_EVENTS_SECONDS)
        ended_job = client.wait(job.id)
    except KeyboardInterrupt:
        _still_running([job])
        raise
    code = tell_end(ended_job, common)
    if not common.json:
        note_outputs(client, job.id)
    return code


@dataclass(frozen=True, slots=True)
class _OutputOrder:
    """Order of events and output in a terminal or file that gets both: that the job runs
    comes before its output, and that it is over comes after it."""

    has_begun: threading.Event = field(default_factory=threading.Event)
    is_printed: threading.Event = field(default_factory=threading.Event)

    def before(self, kind: str) -> None:
        """Wait until an event of this kind may be printed."""
        if kind in FAILURES | ENDS:
            self.has_begun.set()  # some ranks may have printed
        if kind in ENDS:
            self.is_printed.wait(LAST_EVENTS_SECONDS)

    def after(self, kind: str) -> None:
        """Note that an event of this kind was printed."""
        if kind == JobEvent.RANKS_UP:
            self.has_begun.set()


def follow_many(client: "Client", jobs: "Sequence[api.JobView]", common: Common) -> int:
    """Print logs and events of several jobs, each line with the job's name, until all
    jobs are over."""
    from corral.cli.follow_many import follow_each

    output_stream = sys.stderr if common.json else sys.stdout
    try:
        ended_jobs = follow_each(common, jobs, output_stream)
    except KeyboardInterrupt:
        unfinished = {job.id for job in client.jobs(limit=MOST_ROWS)}
        job_views = [job for job in jobs if job.id in unfinished]
        _still_running(job_views or jobs)
        raise
    if common.json:
        print_json({"jobs": [job.model_dump(mode="json") for job in ended_jobs]})
    failed = [job for job in ended_jobs if job.state != "DONE"]
    for job in failed[:MOST_TOLD]:
        _tell_failure(job)
    note(
        f"{len(ended_jobs) - len(failed)} done, {len(failed)} failed or cancelled"
        if failed
        else "all jobs are done"
    )
    return error_output.JOB_FAILED if failed else error_output.DONE


def tell_end(job: "api.JobDetail", common: Common) -> int:
    """Print how the job ended, and return the exit code of the command."""
    if common.json:
        print_json(job)
    if job.state == "DONE":
        ran = time_of(job, job.ended_at if job.ended_at is not None else job.since)
        note(f"{job.name} is done after {duration_text(max(0.0, ran))}")
        return error_output.DONE
    _tell_failure(job)
    return error_output.JOB_FAILED


def _tell_failure(job: "api.JobDetail") -> None:
    code = f" with exit code {job.exit_code}" if job.exit_code is not None else ""
    reason_text = f": {job.reason}" if job.reason else ""
    note(f"{job.name} is {job.state}{code}{reason_text}\nsee: corral why {job.id}")


def _tell_events(common: Common, id: str, order: _OutputOrder) -> None:
    """Print the events of a job as they arrive. This function runs in a separate thread
    with a separate connection."""
    try:
        with common.client() as client:
            for event in client.events(id, follow=True):
                order.before(event.kind)
                if event.kind not in SAID_ELSEWHERE:
                    note(event.text)
                order.after(event.kind)
    except CorralError:
        return  # the logs tell the same trouble in the main thread
    finally:
        order.has_begun.set()


def _still_running(jobs: "Sequence[api.JobView]") -> None:
    job_ids_text = " ".join(job.id for job in jobs[:MOST_TOLD])
    job_ids_text += (
        f" and {len(jobs) - MOST_TOLD} more" if len(jobs) > MOST_TOLD else ""
    )
    note(f"\nstill running: {job_ids_text}")
    note(
        f"to follow {jobs[0].id} again: corral logs -f {jobs[0].id}; "
        f"to cancel it: corral stop {jobs[0].id}"
    )
