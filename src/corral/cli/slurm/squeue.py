"""squeue: waiting and running jobs."""

import json
import os
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime
from typing import Any, Final

from corral import __version__
from corral.boot.clock import SystemClock
from corral.cli.slurm import columns
from corral.cli.slurm.http_client import HeadClient, whoami
from corral.cli.slurm.job_columns import LETTERS, NAMES, SlurmJobRow
from corral.cli.slurm.slurm_states import ACTIVE, states_named
from corral.domain.errors import NotFound
from corral.wire.slurm.hostlist import expand
from corral.wire.slurm.ids import ids_of, raw_of
from corral.wire.slurm.listing_options import SQUEUE
from corral.wire.slurm.options import ParsedOptions
from corral.wire.slurm.slurm_errors import SlurmRefusal

DEFAULT: Final = "%.18i %.9P %.8j %.8u %.2t %.10M %.6D %R"
LONG: Final = "%.18i %.9P %.8j %.8u %.8T %.10M %.9l %.6D %R"
STARTS: Final = "%.18i %.9P %.8j %.8u %.2t %.19S %.6D %20Y %R"
_ORDER: Final = (
    "PENDING",
    "RUNNING",
    "SUSPENDED",
    "CONFIGURING",
    "COMPLETING",
    "REQUEUED",
)


def main(words: Sequence[str]) -> int:
    parsed_options = SQUEUE.read(words, mixed=True)
    if parsed_options.has("help") or parsed_options.has("usage"):
        print(SQUEUE.usage())
        return 0
    interval_seconds = float(parsed_options.get("iterate") or 0)
    while True:
        _print_jobs(parsed_options)
        if not interval_seconds:
            return 0
        sys.stdout.flush()
        time.sleep(interval_seconds)


def _print_jobs(read: ParsedOptions) -> None:
    head = HeadClient()
    now = SystemClock().wall()
    jobs = chosen(read, head, now)
    if read.has("json"):
        print(json.dumps(document([record(job) for job in jobs]), indent=2))
        return
    if not (read.has("array") or read.has("array-unique")):
        jobs = folded(jobs)
    starts = read.has("start")
    if starts:
        jobs = [job for job in jobs if job.state == "PENDING"]
        for job in jobs:
            job.row = {**job.row, "started_at": _forecast_start(head, job, now)}
    header = not read.has("noheader")
    if header and read.has("long") and not read.has("format"):
        print(today(now))
    for line in columns.table(
        _parse_format(read), ordered(jobs, read.get("sort")), header=header
    ):
        print(line)


def today(now: float) -> str:
    """Return the current date and time for the first line of long tables."""
    return (
        datetime.fromtimestamp(now, UTC).astimezone().strftime("%a %b %d %H:%M:%S %Y")
    )


def _parse_format(read: ParsedOptions) -> list[columns.Cell]:
    if (text := read.get("Format")) is not None:
        return columns.long(text, NAMES)
    usual = (
        LONG
        if read.has("long")
        else STARTS.replace("%20Y ", "")
        if read.has("start")
        else DEFAULT
    )
    text = read.get("format") or (
        None if read.has("long") else os.environ.get("SQUEUE_FORMAT")
    )
    return columns.percent(text or usual, LETTERS)


def chosen(read: ParsedOptions, head: HeadClient, now: float) -> list[SlurmJobRow]:
    """Return the rows of squeue: the jobs that its options select.

    Raises: SlurmRefusal for an invalid option.
    """
    states = states_named(read.get("states") or ",".join(ACTIVE))
    job_list = read.get("jobs") or read.get("job")
    rows = (
        _fetch_job_rows(head, job_list)
        if job_list
        else head.jobs(everything=states is None or bool(states - ACTIVE))
    )
    users = set((read.get("user") or "").split(",")) if read.has("user") else set()
    users |= {whoami()} if read.has("me") else set()
    slurm_job_rows = [SlurmJobRow(row, now, head.job) for row in rows]
    nodes = set(_parse_hostlist(read.get("nodelist")))
    return [
        job
        for job in slurm_job_rows
        if (states is None or job.state in states)
        and (not users or job.row["owner"] in users)
        and _is_in(read.get("partition"), job.row["queue"])
        and _is_in(read.get("account"), job.row["queue"])
        and _is_in(read.get("name"), job.name)
        and (not nodes or nodes & set(job.row["nodes"]))
    ]


def _parse_hostlist(text: str | None) -> list[str]:
    try:
        return expand(text) if text else []
    except ValueError as error:
        raise SlurmRefusal(f"Invalid node name specified: {error}") from None


def _fetch_job_rows(head: HeadClient, text: str) -> list[dict[str, Any]]:
    """Return the rows of the requested jobs.

    Raises: SlurmRefusal if a single job is requested and does not exist, as in Slurm.
    """
    ids = list(ids_of(text))
    rows: dict[str, dict[str, Any]] = {}
    for id in ids:
        try:
            rows |= {row["id"]: row for row in head.named(id)}
        except NotFound:
            if len(ids) == 1:
                raise SlurmRefusal(
                    "slurm_load_jobs error: Invalid job id specified", before=None
                ) from None
    return list(rows.values())


def _is_in(names: str | None, name: str) -> bool:
    return names is None or name in names.split(",")


def folded(jobs: Iterable[SlurmJobRow]) -> list[SlurmJobRow]:
    """Return the rows with the waiting jobs of each array merged into one row. For
    example: 17_[0-3]."""
    slurm_job_rows: list[SlurmJobRow] = []
    waiting_by_array: dict[str, list[SlurmJobRow]] = {}
    for job in jobs:
        if job.state == "PENDING" and job.row["array"] is not None:
            waiting_by_array.setdefault(job.row["array"], []).append(job)
        else:
            slurm_job_rows.append(job)
    for group in waiting_by_array.values():
        indices = sorted(job.row["array_index"] for job in group)
        first_job = min(group, key=lambda job: job.row["array_index"])
        slurm_job_rows.append(
            SlurmJobRow(first_job.row, first_job.now, first_job._whole, indices)
        )
    return slurm_job_rows


def ordered(jobs: Iterable[SlurmJobRow], sort: str | None) -> list[SlurmJobRow]:
    """Sort the jobs by partition, state and priority; or by the letters of -S, starting
    with the last letter."""
    slurm_job_rows = sorted(
        jobs, key=lambda job: (job.row["submitted_at"], job.row["array_index"] or 0)
    )
    if not sort:
        return sorted(
            slurm_job_rows,
            key=lambda job: (
                job.row["queue"],
                _state_rank(job.state),
                -job.row["priority"],
            ),
        )
    for sort_field in reversed(sort.split(",")):
        field = LETTERS.get(sort_field.lstrip("+-"))
        if field is None:
            raise SlurmRefusal(f"Invalid sort specification: {sort_field}")
        _sort_by_field(slurm_job_rows, field.value, downwards=sort_field[:1] == "-")
    return slurm_job_rows


def _sort_by_field(
    jobs: list[SlurmJobRow], show: Callable[[SlurmJobRow], str], *, downwards: bool
) -> None:
    jobs.sort(key=lambda job: _numeric_sort_key(show(job)), reverse=downwards)


def _numeric_sort_key(text: str) -> tuple[int, int, str]:
    return (0, int(text), "") if text.isdecimal() else (1, 0, text)


def _state_rank(state: str) -> int:
    return _ORDER.index(state) if state in _ORDER else len(_ORDER)


def _forecast_start(head: HeadClient, job: SlurmJobRow, now: float) -> float | None:
    """Return when the job likely starts: the later end of the predicted interval. None
    if unknown."""
    start_forecast = head.ask("GET", f"/v1/jobs/{job.row['id']}/why").get("forecast")
    seconds = (
        start_forecast["starts"]["high_seconds"]
        or start_forecast["starts"]["low_seconds"]
        if start_forecast
        else None
    )
    return None if seconds is None else now + seconds


def document(jobs: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the document that --json prints around the jobs."""
    meta = {
        "plugin": {"type": "openapi/v0.0.38", "name": "Corral"},
        "Slurm": {
            "version": {"major": 22, "micro": 8, "minor": 5},
            "release": f"corral {__version__}",
        },
    }
    return {"meta": meta, "errors": [], "jobs": jobs}


def record(job: SlurmJobRow) -> dict[str, Any]:
    """Return a job as an object in the form of squeue --json."""
    row, shape = job.row, job.row["shape"]
    limit = job.limit_seconds
    return {
        "job_id": int(raw_of(row["id"]).partition("_")[0]),
        "array_job_id": int(job.array.partition("_")[0]) if row["array"] else 0,
        "array_task_id": row["array_index"],
        "name": job.name,
        "user_name": row["owner"],
        "account": row["queue"],
        "partition": row["queue"],
        "job_state": job.state,
        "state_reason": LETTERS["r"].value(job),
        "state_description": row["reason"],
        "nodes": job.nodes,
        "node_count": shape["nodes"],
        "cpus": job.cpus,
        "tres_per_node": "" if job.gpus == "N/A" else job.gpus,
        "priority": row["priority"],
        "restart_cnt": max(0, row["attempt"] - 1),
        "time_limit": None if limit is None else int(limit // 60),
        "submit_time": int(row["submitted_at"]),
        "start_time": int(row["started_at"] or 0),
        "end_time": int(job.ends_at or 0),
        "exit_code": row["exit_code"] or 0,
    }
