"""logs: print the output of ranks."""

import sys
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from corral.cli import arrays, services
from corral.cli.error_output import Usage
from corral.cli.head_options import Common, Count, Ordinal
from corral.cli.log_lines import LogLinePrinter
from corral.cli.option_types import TextPart
from corral.cli.outputs import note_outputs
from corral.cli.printing import note, print_json_line

if TYPE_CHECKING:
    from corral.client import Client
    from corral.wire import api

_Flag = Annotated[bool, Parameter(negative="", show_default=False)]
_FOLLOW = Parameter(name=["--follow", "-f"], negative="", show_default=False)


def logs(
    job: str,
    /,
    *,
    follow: Annotated[bool, _FOLLOW] = False,
    rank: Count | None = None,
    attempt: Ordinal | None = None,
    tail: Count | None = None,
    search: TextPart = "",
    times: _Flag = False,
    raw: _Flag = False,
    common: Common = Common(),  # noqa: B008 - frozen
) -> None:
    """Print the output of the ranks of the newest attempt.

    Args:
        job: Id or name of a job; if several jobs have the name, the newest one. For an
            array or a service, the output of all its jobs, each line with the index.
        follow: Keep printing new lines, also of later attempts, until the job ends
            (default: print the lines that exist, and exit).
        rank: Print only the output of this rank; ranks count from 0 (default: all).
        attempt: Number of the attempt; attempts count from 1 (default: the newest).
        tail: Print only the last N lines of each rank (default: all lines).
        search: Print only lines that contain this text, in upper or lower case. Not
            with --follow, --tail or --times.
        times: Print before each line when it arrived at the head, to the second.
        raw: Print all control sequences, even on a terminal (default: only colours and
            movements within a line). Files and pipes always get every byte.
    """
    check_search(search, whole=not follow and tail is None, times=times)
    options: dict[str, Any] = {"follow": follow, "rank": rank, "attempt": attempt}
    options.update(tail=tail, times=times)
    with common.client() as client:
        found_job = services.job_or_replicas(client, job)
        if isinstance(found_job, list):
            if search:
                hint = f"run: corral logs {found_job[0].id} --search '{search}'"
                text = f"--search works for one job, and {job} is an array of jobs"
                raise Usage(text, hint=hint)
            arrays.print_logs_of(common, found_job, raw=raw, **options)
            return
        several = found_job.per == "gpu" or found_job.shape.nodes > 1
        if search:
            print_matches(
                client,
                found_job.id,
                search,
                rank,
                attempt,
                common,
                label=several,
                raw=raw,
            )
            return
        lines = LogLinePrinter(
            sys.stdout, label=several and rank is None, raw=raw, times=times
        )
        _print_pieces(client, found_job, lines, options, common)
    if found_job.attempt == 0 and not follow:
        _note_not_run(found_job)


def _print_pieces(
    client: "Client",
    job: "api.JobDetail",
    lines: LogLinePrinter,
    options: dict[str, Any],
    common: Common,
) -> None:
    """Print the log of one job as it arrives, and then list the job's outputs."""
    follow = options["follow"]
    if follow and job.attempt == 0 and not job.is_over:
        _note_not_run(job, "; its output is printed when it runs")
    for piece in client.logs(job.id, **options):
        if common.json:
            print_json_line(piece)
        else:
            lines.write(piece)
    lines.finish()
    if common.json:
        return
    if follow and options["attempt"] is None:
        _note_end(client.job(job.id))
    if job.attempt and (follow or job.is_over):
        note_outputs(client, job.id)


def _note_end(job: "api.JobDetail") -> None:
    """Print how a job that was followed has ended."""
    if not job.is_over:
        return
    reason = f": {job.reason}" if job.reason and job.state != "DONE" else ""
    see = "" if job.state == "DONE" else f"; see: corral why {job.id}"
    note(f"{job.name} is {job.state}{reason}{see}")


def _note_not_run(job: "api.JobDetail", more: str = "") -> None:
    note(
        f"{job.name} is {job.state} and has not run yet{more}; for the reason, run: "
        f"corral why {job.id}"
    )


def check_search(text: str, *, whole: bool, times: bool) -> None:
    """Refuse options that do not work with a text search. `whole`: neither --follow nor
    --tail is given. Raises: Usage."""
    if text and not whole:
        raise Usage(
            "--search cannot be combined with --follow or --tail",
            hint="leave them out, or run: corral logs JOB --follow | grep TEXT",
        )
    if text and times:
        raise Usage(
            "--search cannot be combined with --times",
            hint="leave out --times, or run: corral logs JOB --times | grep TEXT",
        )


def print_matches(
    client: "Client",
    job: str,
    text: str,
    rank: int | None,
    attempt: int | None,
    common: Common,
    *,
    label: bool,
    raw: bool,
) -> None:
    """Print the lines of the job's log that hold the text, as they are found. `label`:
    show the rank.

    Raises: NotFound, Forbidden.
    """
    from corral.wire.api import LogLines  # loaded with the first answer anyway

    lines = LogLinePrinter(sys.stdout, label=label and rank is None, raw=raw)
    search_cursor, number = "", 0
    while True:
        answer = client.search_logs(
            job, text, rank=rank, attempt=attempt, after=search_cursor
        )
        for match in answer.matches:
            if common.json:
                print_json_line(match)
            else:
                lines.write(
                    LogLines(
                        rank=match.rank, attempt=answer.attempt, data=match.line + "\n"
                    )
                )
        number += len(answer.matches)
        search_cursor = answer.next
        if not search_cursor:
            break
    lines.finish()
    if not number:
        note(f"no line of attempt {answer.attempt} contains '{text}'")
