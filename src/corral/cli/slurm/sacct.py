"""sacct: past and current jobs."""

import json
import os
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any, Final

from corral.boot.clock import SystemClock
from corral.cli.slurm import columns
from corral.cli.slurm.columns import Field
from corral.cli.slurm.http_client import HeadClient, whoami
from corral.cli.slurm.job_columns import SlurmJobRow, exit_of, moment
from corral.cli.slurm.slurm_states import reason_of, state_of, states_named
from corral.cli.slurm.squeue import document, record
from corral.domain.errors import NotFound
from corral.wire.slurm import value_forms
from corral.wire.slurm.hostlist import compress_sorted
from corral.wire.slurm.ids import ids_of, raw_of
from corral.wire.slurm.listing_options import SACCT
from corral.wire.slurm.options import ParsedOptions

DEFAULT: Final = "jobid,jobname,partition,account,alloccpus,state,exitcode"
BRIEF: Final = "jobid,state,exitcode"


def _state_text(job: SlurmJobRow) -> str:
    state = state_of(job.row)
    return (
        f"{state} by {_uid_or_name(job.row['owner'])}"
        if state == "CANCELLED"
        else state
    )


def _uid_or_name(name: str) -> str:
    """Return the uid of a user as Slurm prints it; the name if this machine has no such
    account."""
    import pwd

    try:
        return str(pwd.getpwnam(name).pw_uid)
    except KeyError:
        return name


def _is_there(job: SlurmJobRow) -> bool:
    return job.row["started_at"] is not None


def _tres_text(job: SlurmJobRow) -> str:
    shape = job.row["shape"]
    gpus = (
        f",gres/gpu={shape['gpus_per_node'] * shape['nodes']:g}"
        if shape["gpus_per_node"]
        else ""
    )
    return f"billing={job.cpus},cpu={job.cpus}{gpus},mem={job.memory},node={shape['nodes']}"


def _node_list_text(job: SlurmJobRow) -> str:
    """Return the nodes of the job. A listing holds the nodes only while the job runs,
    so those of other jobs are fetched."""
    if not job.nodes and _is_there(job):
        return compress_sorted(job.detail["nodes"])
    return job.nodes or "None assigned"


def _elapsed_seconds(job: SlurmJobRow) -> str:
    return str(int(job.used_seconds))


FIELDS: Final = {
    "jobid": Field(title="JobID", width=-12, value=lambda job: job.id),
    "jobidraw": Field(
        title="JobIDRaw", width=-12, value=lambda job: raw_of(job.row["id"])
    ),
    "jobname": Field(title="JobName", value=lambda job: job.name),
    "partition": Field(title="Partition", value=lambda job: job.row["queue"]),
    "account": Field(title="Account", value=lambda job: job.row["queue"]),
    "user": Field(title="User", width=9, value=lambda job: job.row["owner"]),
    "state": Field(title="State", value=_state_text),
    "exitcode": Field(title="ExitCode", width=8, value=exit_of),
    "derivedexitcode": Field(title="DerivedExitCode", width=15, value=exit_of),
    "reason": Field(title="Reason", width=22, value=lambda job: reason_of(job.row)),
    "nodelist": Field(title="NodeList", width=15, value=_node_list_text),
    "nnodes": Field(
        title="NNodes", width=8, value=lambda job: str(job.row["shape"]["nodes"])
    ),
    "allocnodes": Field(
        title="AllocNodes",
        value=lambda job: str(job.row["shape"]["nodes"] * _is_there(job)),
    ),
    "ncpus": Field(title="NCPUS", value=lambda job: str(job.cpus * _is_there(job))),
    "alloccpus": Field(
        title="AllocCPUS", value=lambda job: str(job.cpus * _is_there(job))
    ),
    "reqcpus": Field(title="ReqCPUS", width=8, value=lambda job: str(job.cpus)),
    "reqmem": Field(title="ReqMem", value=lambda job: job.memory),
    "reqtres": Field(title="ReqTRES", value=_tres_text),
    "alloctres": Field(
        title="AllocTRES", value=lambda job: _tres_text(job) if _is_there(job) else ""
    ),
    "submit": Field(
        title="Submit",
        width=19,
        value=lambda job: moment(job.row["submitted_at"], "Unknown"),
    ),
    "eligible": Field(
        title="Eligible",
        width=19,
        value=lambda job: moment(job.row["submitted_at"], "Unknown"),
    ),
    "start": Field(
        title="Start",
        width=19,
        value=lambda job: moment(job.row["started_at"], "Unknown"),
    ),
    "end": Field(
        title="End", width=19, value=lambda job: moment(job.row["ended_at"], "Unknown")
    ),
    "elapsed": Field(
        title="Elapsed", value=lambda job: value_forms.elapsed_text(job.used_seconds)
    ),
    "elapsedraw": Field(title="ElapsedRaw", value=_elapsed_seconds),
    "timelimit": Field(
        title="Timelimit",
        value=lambda job: (
            "UNLIMITED"
            if job.limit_seconds is None
            else value_forms.elapsed_text(job.limit_seconds)
        ),
    ),
    "cputimeraw": Field(
        title="CPUTimeRAW", value=lambda job: str(int(job.used_seconds) * job.cpus)
    ),
    "cputime": Field(
        title="CPUTime",
        value=lambda job: value_forms.elapsed_text(int(job.used_seconds) * job.cpus),
    ),
    "totalcpu": Field(title="TotalCPU", value=lambda job: ""),
    "maxrss": Field(title="MaxRSS", value=lambda job: ""),
    "maxvmsize": Field(title="MaxVMSize", value=lambda job: ""),
    "averss": Field(title="AveRSS", value=lambda job: ""),
    "priority": Field(title="Priority", value=lambda job: str(job.row["priority"])),
    "qos": Field(title="QOS", value=lambda job: "normal"),
    "cluster": Field(title="Cluster", value=lambda job: "corral"),
    "comment": Field(title="Comment", width=14, value=lambda job: ""),
    "workdir": Field(title="WorkDir", width=20, value=lambda job: job.directory or ""),
    "submitline": Field(title="SubmitLine", width=20, value=lambda job: ""),
    "restarts": Field(
        title="Restarts", value=lambda job: str(max(0, job.row["attempt"] - 1))
    ),
}


def main(words: Sequence[str]) -> int:
    parsed_options = SACCT.read(words, mixed=True)
    if parsed_options.has("help") or parsed_options.has("usage"):
        print(SACCT.usage())
        return 0
    if parsed_options.has("helpformat"):
        titles = [field.title for field in FIELDS.values()]
        for title_index in range(0, len(titles), 4):
            print(
                " ".join(
                    f"{title:<19}" for title in titles[title_index : title_index + 4]
                ).rstrip()
            )
        return 0
    now = SystemClock().wall()
    jobs = _select_jobs(parsed_options, HeadClient(), now)
    if parsed_options.has("json"):
        print(json.dumps(document([_job_record(job) for job in jobs]), indent=2))
        return 0
    for line in _format_lines(parsed_options, jobs):
        print(line)
    return 0


def _format_lines(read: ParsedOptions, jobs: Sequence[SlurmJobRow]) -> list[str]:
    usual = (
        BRIEF
        if read.has("brief")
        else ",".join(FIELDS)
        if read.has("long")
        else DEFAULT
    )
    text = read.get("format") or os.environ.get("SACCT_FORMAT") or usual
    cells = columns.sacct(text.lower(), FIELDS)
    header = not read.has("noheader")
    if read.has("parsable") or read.has("parsable2"):
        ending = not read.has("parsable2")
        divider = read.get("delimiter") or "|"
        return columns.parsable(
            cells, jobs, header=header, ending=ending, divider=divider
        )
    return columns.ruled(cells, jobs, header=header)


def _select_jobs(
    read: ParsedOptions, head: HeadClient, now: float
) -> list[SlurmJobRow]:
    """Return the selected jobs, oldest first.

    Raises: SlurmRefusal for an invalid option.
    """
    job_list = ",".join(filter(None, (read.get("jobs"), *read.rest)))
    rows = _fetch_job_rows(head, job_list) if job_list else head.jobs(everything=True)
    states = states_named(read.get("state") or "all")
    range_start, range_end = _parse_time_range(read, now, named=bool(job_list))
    users = _user_filter(read, named=bool(job_list))
    slurm_job_rows = [SlurmJobRow(row, now, head.job) for row in rows]
    return sorted(
        (
            job
            for job in slurm_job_rows
            if (states is None or job.state in states)
            and (users is None or job.row["owner"] in users)
            and _is_in(read.get("partition"), job.row["queue"])
            and _is_in(read.get("accounts"), job.row["queue"])
            and _is_in(read.get("name"), job.name)
            and (job.row["ended_at"] or now) >= range_start
            and job.row["submitted_at"] <= range_end
        ),
        key=lambda job: (job.row["submitted_at"], job.row["array_index"] or 0),
    )


def _fetch_job_rows(head: HeadClient, text: str) -> list[dict[str, Any]]:
    """Return the existing jobs for a list of job ids. An unknown id gives no row, as in
    Slurm's accounting."""
    rows: dict[str, dict[str, Any]] = {}
    for id in ids_of(text):
        try:
            rows |= {row["id"]: row for row in head.named(id)}
        except NotFound:
            continue
    return list(rows.values())


def _parse_time_range(
    read: ParsedOptions, now: float, *, named: bool
) -> tuple[float, float]:
    """Return (start, end) of the period to list, in seconds since 1970.

    By default the period starts today at midnight. It has no start if jobs are named or
    a state is given.
    """
    local_now = datetime.fromtimestamp(now, UTC).astimezone()
    end_text = read.get("endtime")
    end_seconds = now + 1 if end_text is None else _parse_past_time(end_text, local_now)
    start_text = read.get("starttime")
    if start_text is not None:
        return _parse_past_time(start_text, local_now), end_seconds
    if named or read.has("state"):
        return 0.0, end_seconds
    return local_now.replace(
        hour=0, minute=0, second=0, microsecond=0
    ).timestamp(), end_seconds


def _parse_past_time(text: str, here: datetime) -> float:
    """Parse a time, in seconds since 1970. now-2days is accepted, and a time of day is
    that of today."""
    if text.lower().startswith("now-"):
        ahead = value_forms.moment(f"now+{text[4:]}", here, "--starttime")
        return here.timestamp() - (ahead - here).total_seconds()
    midnight = here.replace(hour=0, minute=0, second=0, microsecond=0)
    if text.lower() in ("today", "midnight"):
        return midnight.timestamp()
    if text.lower() == "now":
        return here.timestamp()
    just_before = datetime.fromtimestamp(midnight.timestamp() - 1, UTC).astimezone()
    is_clock = ":" in text and "-" not in text and "/" not in text
    return value_forms.moment(
        text, just_before if is_clock else here, "--starttime"
    ).timestamp()


def _user_filter(read: ParsedOptions, *, named: bool) -> set[str] | None:
    """Return the users whose jobs are listed; None for all users. Without an option,
    root sees all jobs, and other users see their own."""
    if read.has("user"):
        return set((read.get("user") or "").split(","))
    if named or read.has("allusers") or os.geteuid() == 0:
        return None
    return {whoami()}


def _is_in(names: str | None, name: str) -> bool:
    return names is None or name in names.split(",")


def _job_record(job: SlurmJobRow) -> dict[str, Any]:
    """Return a job as an object in the form of sacct --json."""
    plain = record(job)
    code = job.row["exit_code"]
    return {
        "job_id": plain["job_id"],
        "array": {"job_id": plain["array_job_id"], "task_id": plain["array_task_id"]},
        "name": job.name,
        "user": job.row["owner"],
        "account": job.row["queue"],
        "partition": job.row["queue"],
        "state": {"current": job.state, "reason": reason_of(job.row)},
        "exit_code": {
            "status": "SUCCESS" if not code else "ERROR",
            "return_code": code or 0,
        },
        "nodes": job.nodes,
        "allocation_nodes": job.row["shape"]["nodes"],
        "required": {
            "CPUs": job.cpus,
            "memory": job.row["shape"]["memory_bytes_per_node"],
        },
        "time": {
            "elapsed": int(job.used_seconds),
            "start": int(job.row["started_at"] or 0),
            "end": int(job.row["ended_at"] or 0),
            "submission": int(job.row["submitted_at"]),
            "limit": plain["time_limit"],
        },
        "steps": [],
    }
