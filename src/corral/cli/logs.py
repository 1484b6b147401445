"""logs."""

import sys
from typing import Annotated, Any

from cyclopts import Parameter

from corral.cli import arrays
from corral.cli.common import Common, Count, Ordinal
from corral.cli.lines import Lines
from corral.cli.output import note, print_json_line


def logs(
    job: str,
    /,
    *,
    follow: Annotated[
        bool, Parameter(name=["--follow", "-f"], negative="", show_default=False)
    ] = False,
    rank: Count | None = None,
    attempt: Ordinal | None = None,
    tail: Count | None = None,
    raw: Annotated[bool, Parameter(negative="", show_default=False)] = False,
    common: Common = Common(),  # noqa: B008 - frozen
) -> None:
    """Print what the ranks printed, of the newest attempt.

    Args:
        job: Its id, or the newest of this name; of an array, of all its jobs, each line with its
            index before it.
        follow: Go on as they print, through later attempts, until the job is over.
        rank: Of this rank only.
        attempt: Of this attempt.
        tail: Only the last so many lines of each rank.
        raw: On a terminal, too, print every byte; without it only colours and what stays within
            its line command the terminal. Files and pipes always get every byte.
    """
    asked: dict[str, Any] = {"follow": follow, "rank": rank, "attempt": attempt, "tail": tail}
    with common.client() as client:
        found = arrays.found(client, job, client.job)
        if isinstance(found, list):
            arrays.print_logs_of(common, found, raw=raw, **asked)
            return
        several = found.per == "gpu" or found.shape.nodes > 1
        lines = Lines(sys.stdout, label=several and rank is None, raw=raw)
        for piece in client.logs(found.id, follow=follow, rank=rank, attempt=attempt, tail=tail):
            if common.json:
                print_json_line(piece)
            else:
                lines.write(piece)
        lines.finish()
    if found.attempt == 0 and not follow:
        note(f"{found.name} is {found.state}, it has not run yet; see: corral why {found.id}")
