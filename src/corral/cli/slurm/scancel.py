"""scancel: cancel jobs, or send a signal to them."""

import sys
from collections.abc import Sequence
from signal import SIGKILL
from typing import Any, Final

from corral.boot.clock import SystemClock
from corral.cli.slurm.http_client import HeadClient, whoami
from corral.cli.slurm.job_columns import SlurmJobRow
from corral.cli.slurm.slurm_states import states_named
from corral.domain.errors import Conflict, Forbidden, NotFound, Unsupported
from corral.domain.job_states import FINAL
from corral.wire.slurm.hostlist import expand
from corral.wire.slurm.ids import ids_of, number_of
from corral.wire.slurm.listing_options import SCANCEL
from corral.wire.slurm.options import ParsedOptions
from corral.wire.slurm.slurm_errors import SlurmRefusal
from corral.wire.slurm.value_forms import signal_number

_PENDING = dict.fromkeys(("HELD", "QUEUED", "SUSPENDED"), "Job is pending execution")
MOST_CHANGED: Final = 10_000  # jobs of one request
_FILTERS = ("account", "me", "name", "nodelist", "partition", "state", "user")


def main(words: Sequence[str]) -> int:
    parsed_options = SCANCEL.read(words, mixed=True)
    if parsed_options.has("help") or parsed_options.has("usage"):
        print(SCANCEL.usage())
        return 0
    number = _parse_signal(parsed_options)
    if not parsed_options.rest and not any(
        parsed_options.has(filter_name) for filter_name in _FILTERS
    ):
        raise SlurmRefusal("No job identification provided")
    head = HeadClient()
    chosen_rows = [
        row
        for row in _select_job_rows(parsed_options, head)
        if not parsed_options.has("interactive") or _confirm_cancel(row)
    ]
    if number is None:
        failed = not _cancelled(head, parsed_options, chosen_rows)
    else:
        failed = not all(
            [_signalled(head, parsed_options, row, number) for row in chosen_rows]
        )
    return 1 if failed else 0


def _parse_signal(read: ParsedOptions) -> int | None:
    """Return the signal to send; None to cancel the job. Every other signal than KILL,
    TERM included, goes to the steps and changes no state, as in Slurm."""
    number = signal_number(read.get("signal") or "KILL")
    return None if number == SIGKILL else number


def _signal_target(read: ParsedOptions) -> str:
    return "all" if read.has("full") else "batch" if read.has("batch") else "ranks"


def _select_job_rows(read: ParsedOptions, head: HeadClient) -> list[dict[str, Any]]:
    rows: dict[str, dict[str, Any]] = {}
    for id_text in read.rest:
        for id in ids_of(id_text):
            try:
                rows |= {row["id"]: row for row in head.named(id)}
            except NotFound:
                continue  # as Slurm: nothing of it is left, and that is what was wanted
    if not read.rest:
        rows = {row["id"]: row for row in head.jobs(everything=False)}
    return [row for row in rows.values() if _is_meant(read, row, named=bool(read.rest))]


def _is_meant(read: ParsedOptions, row: dict[str, Any], *, named: bool) -> bool:
    job = SlurmJobRow(row, SystemClock().wall(), lambda _: row)
    states = states_named(read.get("state") or "all")
    users = (
        {read.get("user") or whoami()} if read.has("user") or read.has("me") else set()
    )
    nodes = set(expand(read.get("nodelist") or "")) if read.has("nodelist") else set()
    is_over = job.row["state"] in FINAL
    return (
        (states is None or job.state in states)
        and (not users or row["owner"] in users)
        and row["queue"] in (read.get("partition") or row["queue"], read.get("account"))
        and job.name in (read.get("name") or job.name).split(",")
        and (not nodes or bool(nodes & set(row["nodes"])))
        and (named or not is_over)
    )


def _cancelled(
    head: HeadClient, read: ParsedOptions, meant: Sequence[dict[str, Any]]
) -> bool:
    """Cancel the jobs `meant`, many by one request. Return True if no job was refused;
    a job that has already ended does not count as refused, as in Slurm."""
    ids = [row["id"] for row in meant if row["state"] not in FINAL]
    well = True
    for batch_start in range(0, len(ids), MOST_CHANGED):
        for outcome in head.cancel(ids[batch_start : batch_start + MOST_CHANGED]):
            if outcome["code"] == Conflict.code or not outcome["jobs"]:
                continue
            denied = (
                "Access/permission denied: "
                if outcome["code"] == Forbidden.code
                else ""
            )
            well = _report_kill_error(
                read, outcome["jobs"][0], denied + outcome["message"]
            )
    return well


def _signalled(
    head: HeadClient, read: ParsedOptions, row: dict[str, Any], number: int
) -> bool:
    """Send a signal to the job. Return False if refused; a job that is over counts as
    sent."""
    if row["state"] in FINAL:
        return True
    try:
        head.signal(row["id"], number, _signal_target(read))
    except Conflict as error:
        return _report_kill_error(
            read, row["id"], _PENDING.get(row["state"], error.message)
        )
    except Unsupported as error:
        return _report_kill_error(read, row["id"], error.message)
    except Forbidden as error:
        return _report_kill_error(
            read, row["id"], f"Access/permission denied: {error.message}"
        )
    return True


def _report_kill_error(read: ParsedOptions, id: str, why: str) -> bool:
    _print_error(read, f"Kill job error on job id {number_of(id)}: {why}")
    return False


def _print_error(read: ParsedOptions, text: str) -> None:
    if not read.has("quiet"):
        print(f"scancel: error: {text}", file=sys.stderr)


def _confirm_cancel(row: dict[str, Any]) -> bool:
    print(
        f"Cancel job_id={number_of(row['id'])} name={row['name']} partition={row['queue']} [y/n]? ",
        end="",
        flush=True,
    )
    return sys.stdin.readline().strip().lower() in ("y", "yes")
