"""srun --pty outside of a job: a terminal in a job of its own, which ends when the user
leaves the terminal."""

import shlex
import signal
import sys
import time
from collections.abc import Sequence
from typing import Any, Final

from corral.cli.slurm.http_client import PAUSE_SECONDS, HeadClient
from corral.cli.slurm.sbatch import submit
from corral.domain.job_states import FINAL
from corral.wire.slurm.ids import number_of, raw_of
from corral.wire.slurm.options import ParsedOptions

# in the attempt's own folder, where its ranks begin
_KEPT: Final = ".terminal-environment"
_ENDED: Final = ".terminal-ended"  # FIFO in that folder: exit code of the terminal
# What the job itself does: it keeps its place, leaves the variables of a batch job to
# what runs in the terminal, and ends as that ends. They are whole when the file has its
# name.
SCRIPT: Final = (
    '#!/bin/sh\numask 077\nhere=$(dirname "$CORRAL_SLURM_BIN")\n'
    f'mkfifo "$here/{_ENDED}"\n'
    f'export -p > "$here/{_KEPT}.new"\nmv "$here/{_KEPT}.new" "$here/{_KEPT}"\n'
    f'read -r code < "$here/{_ENDED}"\nexit "$code"\n'
)
# until a job whose terminal is closed is over, before it is cancelled
END_SECONDS: Final = 10.0


def command(words: Sequence[str]) -> str:
    """Return the shell command that runs the program in the job's terminal. A Ctrl-C
    for the program does not end the shell."""
    wait = f"while [ ! -e {_KEPT} ]; do sleep 0.1; done"
    take_over = f'term=$TERM; . ./{_KEPT}; export TERM="$term"; cd "$PWD"'
    tell = f'code=$?; echo $code > "$1/{_ENDED}"; exit $code'
    runs = f"trap : INT QUIT; {shlex.join(words)}"
    return f'set -- "$PWD"; {wait}; {take_over}; {runs}; {tell}'


def run(spec: dict[str, Any], notes: Sequence[str], read: ParsedOptions) -> int:
    """Submit a job, open a terminal in it when it runs, and end the job with the
    program in the terminal. Print `notes` first. Return the exit code of the program.
    """
    from corral.cli.attach import attach  # only now is what it needs worth its time

    if not read.has("quiet"):
        for note in notes:
            print(f"srun: {note}", file=sys.stderr)
    head = HeadClient()
    job = submit(head, spec, hold=False)[0]
    id = str(job["id"])
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        if job["state"] in ("QUEUED", "HELD") and not read.has("quiet"):
            print(
                f"srun: job {number_of(id)} queued and waiting for resources",
                file=sys.stderr,
            )
        ended_job = _until_running(head, id)
        if ended_job is not None:
            print(
                f"srun: error: job {raw_of(id)}: {ended_job['reason']}", file=sys.stderr
            )
            return ended_job["exit_code"] or 1
        code = attach(id, command(read.rest))
        _until_over(head, id)
        return code
    finally:
        if head.job(id)["state"] not in FINAL:
            head.change(id, "cancel")


def _until_over(head: HeadClient, id: str) -> None:
    """Wait up to END_SECONDS until the job has ended. It ends with the program in its
    terminal, but not if the user only left the terminal."""
    give_up_at = time.monotonic() + END_SECONDS
    while head.job(id)["state"] not in FINAL and time.monotonic() < give_up_at:
        time.sleep(PAUSE_SECONDS)


def _until_running(head: HeadClient, id: str) -> dict[str, Any] | None:
    """Wait until the job runs, and return None. If the job ends without running, return
    the job."""
    while True:
        job_row = head.job(id)
        if job_row["state"] == "RUNNING":
            return None
        if job_row["state"] in FINAL:
            return job_row
        time.sleep(PAUSE_SECONDS)
