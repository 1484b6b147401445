"""scancel: jobs are cancelled."""

import sys
from collections.abc import Sequence
from typing import Any

from corral.boot.clock import SystemClock
from corral.cli.slurm.head import Head, whoami
from corral.cli.slurm.jobs import Job
from corral.cli.slurm.states import states_named
from corral.domain.errors import Conflict, Forbidden, NotFound
from corral.wire.slurm.hostlist import expand
from corral.wire.slurm.ids import ids_of, number_of
from corral.wire.slurm.listing_options import SCANCEL
from corral.wire.slurm.options import Read
from corral.wire.slurm.values import signal_number
from corral.wire.slurm.wrong import Wrong

_ENDS = (9, 15)
_FILTERS = ("account", "me", "name", "nodelist", "partition", "state", "user")


def main(words: Sequence[str]) -> int:
    read = SCANCEL.read(words, mixed=True)
    if read.has("help") or read.has("usage"):
        print(SCANCEL.usage())
        return 0
    _check_signal(read)
    if not read.rest and not any(read.has(one) for one in _FILTERS):
        raise Wrong("No job identification provided")
    head = Head()
    failed = False
    for row in _asked(read, head):
        if read.has("interactive") and not _agreed(row):
            continue
        failed |= not _cancelled(head, read, row)
    return 1 if failed else 0


def _check_signal(read: Read) -> None:
    said = read.get("signal")
    if said is not None and signal_number(said) not in _ENDS:
        raise Wrong(
            f"signal {said} cannot be sent to a job from outside",
            hint="let the job be told before its limit: sbatch --signal=USR1@90; "
            "or open a shell in it and send it there: corral attach JOB",
        )


def _asked(read: Read, head: Head) -> list[dict[str, Any]]:
    rows: dict[str, dict[str, Any]] = {}
    for word in read.rest:
        for id in ids_of(word):
            try:
                rows |= {row["id"]: row for row in head.named(id)}
            except NotFound:
                continue  # as Slurm: nothing of it is left, and that is what was wanted
    if not read.rest:
        rows = {row["id"]: row for row in head.jobs(everything=False)}
    return [row for row in rows.values() if _is_meant(read, row, named=bool(read.rest))]


def _is_meant(read: Read, row: dict[str, Any], *, named: bool) -> bool:
    job = Job(row, SystemClock().wall(), lambda _: row)
    states = states_named(read.get("state") or "all")
    users = {read.get("user") or whoami()} if read.has("user") or read.has("me") else set()
    nodes = set(expand(read.get("nodelist") or "")) if read.has("nodelist") else set()
    is_over = job.row["state"] in ("DONE", "FAILED", "CANCELLED")
    return (
        (states is None or job.state in states)
        and (not users or row["owner"] in users)
        and row["queue"] in (read.get("partition") or row["queue"], read.get("account"))
        and job.name in (read.get("name") or job.name).split(",")
        and (not nodes or bool(nodes & set(row["nodes"])))
        and (named or not is_over)
    )


def _cancelled(head: Head, read: Read, row: dict[str, Any]) -> bool:
    """Whether that was well; a job that is over is no reason to fail, as with Slurm."""
    number = number_of(row["id"])
    if row["state"] in ("DONE", "FAILED", "CANCELLED"):
        return True
    try:
        head.change(row["id"], "cancel")
    except Conflict:
        pass
    except Forbidden as error:
        _say(read, f"Kill job error on job id {number}: Access/permission denied: {error.message}")
        return False
    return True


def _say(read: Read, text: str) -> None:
    if not read.has("quiet"):
        print(f"scancel: error: {text}", file=sys.stderr)


def _agreed(row: dict[str, Any]) -> bool:
    print(
        f"Cancel job_id={number_of(row['id'])} name={row['name']} partition={row['queue']} [y/n]? ",
        end="",
        flush=True,
    )
    return sys.stdin.readline().strip().lower() in ("y", "yes")
