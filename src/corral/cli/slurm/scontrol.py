"""scontrol: show jobs, nodes and partitions; requeue, hold, release; lists of hosts."""

import json
import os
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

from corral.boot.clock import SystemClock
from corral.cli.slurm import sinfo
from corral.cli.slurm.http_client import HeadClient
from corral.cli.slurm.job_columns import UNKNOWN, SlurmJobRow, moment
from corral.cli.slurm.slurm_states import exit_text, reason_of
from corral.cli.slurm.squeue import document, record
from corral.domain.errors import Conflict, NotFound
from corral.wire.slurm import value_forms
from corral.wire.slurm.hostlist import compress, compress_sorted, expand
from corral.wire.slurm.ids import ids_of, number_of, raw_of
from corral.wire.slurm.sbatch import plain_name
from corral.wire.slurm.slurm_errors import SlurmRefusal

_FLAGS: Final = {
    "-o": "oneliner",
    "--oneliner": "oneliner",
    "--json": "json",
    "-d": "",
    "--details": "",
    "-a": "",
    "--all": "",
    "-Q": "",
    "--quiet": "",
}
USAGE: Final = """Usage: scontrol [-o] [--json] COMMAND
  show job|node|partition [NAME]    show hostnames|hostlist [LIST]    show config
  requeue ID...    hold ID...    release ID...    ping    version
  update JobId=ID [TimeLimit=TIME] [Partition=NAME] [JobName=NAME] [Priority=N] [Nice=N]"""


def main(words: Sequence[str]) -> int:
    flags = {_FLAGS[flag_word] for flag_word in words if flag_word in _FLAGS}
    rest = [command_word for command_word in words if command_word not in _FLAGS]
    if not rest or rest[0] in ("-h", "--help", "help"):
        print(USAGE)
        return 0
    name, *arguments = rest
    if "show".startswith(name) and len(name) > 1:
        return _show_entity(arguments, flags)
    command = _COMMANDS.get(name)
    if command is None:
        raise SlurmRefusal(
            f"invalid keyword: {name}",
            before=None,
            hint="use one of: show, update, requeue, hold, release, ping",
        )
    return command(arguments)


def _show_entity(words: Sequence[str], flags: set[str]) -> int:
    entity_name, *names = words or [""]
    if "hostnames".startswith(entity_name) and len(entity_name) > 5:
        for host in _parse_hostlist(names):
            print(host)
        return 0
    if "hostlist".startswith(entity_name) and len(entity_name) > 5:
        print(compress(_parse_hostlist(names)))
        return 0
    show = _SHOWS.get(entity_name.lower().rstrip("s")) or _SHOWS.get(
        entity_name.lower()
    )
    if show is None:
        raise SlurmRefusal(f"invalid entity:{entity_name} for keyword:show")
    if entity_name.lower().startswith("job") and "json" in flags:
        rows = _fetch_jobs(HeadClient(), names)
        jobs = [record(job) for job in rows]
        print(json.dumps(document(jobs), indent=2))
        return 0
    for lines in show(names):
        output_lines = (
            [line.strip() for line in lines] if "oneliner" in flags else lines
        )
        print((" " if "oneliner" in flags else "\n").join(output_lines))
        if "oneliner" not in flags:
            print()
    return 0


def _parse_hostlist(names: Sequence[str]) -> list[str]:
    text = names[0] if names else os.environ.get("SLURM_JOB_NODELIST", "")
    try:
        return expand(text) if text else []
    except ValueError as error:
        raise SlurmRefusal(f"Invalid hostlist: {error}") from None


def _fetch_jobs(head: HeadClient, names: Sequence[str]) -> list[SlurmJobRow]:
    now = SystemClock().wall()
    if not names:
        return [SlurmJobRow(row, now, head.job) for row in head.jobs(everything=False)]
    rows_found = []
    for id in ids_of(",".join(names)):
        try:
            rows_found += [SlurmJobRow(row, now, head.job) for row in head.named(id)]
        except NotFound:
            raise SlurmRefusal(
                "slurm_load_jobs error: Invalid job id specified", before=None
            ) from None
    return rows_found


def _show_jobs(names: Sequence[str]) -> Iterator[list[str]]:
    jobs = _fetch_jobs(HeadClient(), names)
    if not jobs:
        print("No jobs in the system")
    for job in jobs:
        yield list(_job_lines(job))


def _job_lines(job: SlurmJobRow) -> Iterator[str]:
    row = job.row
    index = row["array_index"]
    array = f" ArrayJobId={job.array} ArrayTaskId={index}" if index is not None else ""
    limit = "UNLIMITED"
    if job.limit_seconds is not None:
        limit = value_forms.elapsed_text(job.limit_seconds)
    clock = value_forms.elapsed_text(job.used_seconds)
    job_detail = job.detail
    yield f"JobId={raw_of(row['id'])}{array} JobName={job.name}"
    yield f"   UserId={row['owner']} GroupId=N/A MCS_label=N/A"
    yield f"   Priority={row['priority']} Nice=0 Account={row['queue']} QOS=normal"
    yield f"   JobState={job.state} Reason={reason_of(row)} Dependency=(null)"
    yield (
        f"   Requeue=1 Restarts={max(0, row['attempt'] - 1)} BatchFlag=1 Reboot=0 "
        + (f"ExitCode={exit_text(row)}")
    )
    yield f"   RunTime={clock} TimeLimit={limit} TimeMin=N/A"
    yield f"   SubmitTime={moment(row['submitted_at'])} EligibleTime={moment(row['submitted_at'])}"
    yield f"   StartTime={moment(row['started_at'], 'Unknown')} " + (
        f"EndTime={moment(job.ends_at, 'Unknown')} Deadline={moment(job_detail['starts_by'])}"
    )
    yield f"   Partition={row['queue']} AllocNode:Sid=N/A"
    yield f"   ReqNodeList=(null) ExcNodeList=(null)\n   NodeList={job.nodes or '(null)'}"
    if row["nodes"]:
        yield f"   BatchHost={row['nodes'][0]}"
    shape = row["shape"]
    yield f"   NumNodes={shape['nodes']} NumCPUs={job.cpus} NumTasks={shape['nodes']} CPUs/Task=1"
    yield f"   TRES={tres_text(job)}"
    yield f"   MinMemoryNode={job.memory} MinTmpDiskNode=0"
    exclusive = "NO" if job_detail["place"]["exclusive"] else "OK"
    features = "&".join(job_detail["place"]["constraints"]) or "(null)"
    yield f"   Features={features} OverSubscribe={exclusive}"
    if job.gpus != UNKNOWN:
        yield f"   TresPerNode={job.gpus}"
    if job.plan is not None:
        yield f"   Command={job.command or '(null)'}"
        yield f"   WorkDir={job.plan.chdir}"
        yield f"   StdErr={job.file(job.plan.error)}"
        yield f"   StdIn={job.file(job.plan.input or '/dev/null')}"
        yield f"   StdOut={job.file(job.plan.output)}"
    yield f"   Comment={row['reason']}" if row["reason"] else "   Comment=(null)"


def tres_text(job: SlurmJobRow) -> str:
    """Return the resources of the job on all of its nodes. For example:
    cpu=4,mem=8G,node=2,billing=4,gres/gpu=16."""
    shape = job.row["shape"]
    resource_text = (
        f"cpu={job.cpus},mem={job.memory},node={shape['nodes']},billing={job.cpus}"
    )
    if not shape["gpus_per_node"]:
        return resource_text
    gpus = f"{shape['gpus_per_node'] * shape['nodes']:g}"
    kind = f",gres/gpu:{shape['gpu_type']}={gpus}" if shape["gpu_type"] else ""
    return f"{resource_text},gres/gpu={gpus}{kind}"


def _show_nodes(names: Sequence[str]) -> Iterator[list[str]]:
    nodes = HeadClient().ask("GET", "/v1/nodes")["nodes"]
    node_ids = set(_parse_hostlist(names)) if names else {node["id"] for node in nodes}
    for missing in sorted(node_ids - {node["id"] for node in nodes}):
        raise SlurmRefusal(f"Node {missing} not found")
    for node in nodes:
        if node["id"] in node_ids:
            yield list(_node_lines(node))


def _node_lines(node: dict[str, Any]) -> Iterator[str]:
    star = "" if node["liveness"] == "alive" else "*"
    yield f"NodeName={node['id']} Arch=x86_64"
    yield f"   CPUTot={int(node['cpus'])}"
    yield f"   AvailableFeatures={sinfo.features_of(node)}"
    yield f"   ActiveFeatures={sinfo.features_of(node)}"
    yield f"   Gres={sinfo.gres_of(node)}"
    yield f"   NodeAddr={node['address']} NodeHostName={node['id']}"
    yield f"   RealMemory={node['memory_bytes'] // 2**20}"
    yield f"   State={sinfo.state_of(node).upper()}{star} ThreadsPerCore=1 TmpDisk=0 Weight=1"
    reason = sinfo.why_of(node)
    if reason and (star or node["cordoned"] or node["draining"] or node.get("closed")):
        yield f"   Reason={reason} [{moment(node['since'])}]"


def _show_partitions(names: Sequence[str]) -> Iterator[list[str]]:
    head = HeadClient()
    nodes = head.ask("GET", "/v1/nodes")["nodes"]
    queues = sinfo.partitions(head)
    for name in names:
        if name not in queues:
            raise SlurmRefusal(f"Partition {name} not found")
    for name, limit in queues.items():
        if not names or name in names:
            usual = "YES" if name == "default" else "NO"
            longest = limit.replace("infinite", "UNLIMITED")
            yield [
                f"PartitionName={name}",
                f"   AllowGroups=ALL AllowAccounts=ALL Default={usual}",
                f"   MaxNodes=UNLIMITED MaxTime={longest} MinNodes=1",
                f"   Nodes={compress_sorted([node['id'] for node in nodes])}",
                f"   State=UP TotalCPUs={sum(int(node['cpus']) for node in nodes)} "
                f"TotalNodes={len(nodes)}",
            ]


def _show_config(names: Sequence[str]) -> Iterator[list[str]]:
    now = moment(SystemClock().wall())
    yield [
        f"Configuration data as of {now}",
        "AccountingStorageType   = accounting_storage/corral",
        "ClusterName             = corral",
        "JobRequeue              = 1",
        "KillWait                = 30 sec",
        "MaxArraySize            = 10001",
        "SLURM_VERSION           = 22.05.8",
    ]


_SHOWS: Final[dict[str, Callable[[Sequence[str]], Iterator[list[str]]]]] = {
    "job": _show_jobs,
    "node": _show_nodes,
    "partition": _show_partitions,
    "config": _show_config,
}


def _change_each_job(
    words: Sequence[str], change: Callable[[HeadClient, str], object]
) -> int:
    if not words:
        raise SlurmRefusal("too few arguments for keyword")
    head, failed = HeadClient(), False
    for id in ids_of(",".join(words)):
        try:
            rows = head.named(id)
        except NotFound:
            words = f"Invalid job id specified for job {number_of(id)}"
            raise SlurmRefusal(words, before=None) from None
        for row in rows:
            try:
                change(head, row["id"])
            except Conflict as error:
                failed = True
                print(
                    f"scontrol: error: {error.message} (job {number_of(row['id'])})",
                    file=sys.stderr,
                )
    return 1 if failed else 0


def _requeue_jobs(words: Sequence[str]) -> int:
    """Requeue jobs, including the job that runs this command. Return the exit code.

    SIGTERM is ignored, because the job that runs this command is stopped before the
    head's answer arrives.
    """
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    return _change_each_job(words, lambda head, id: head.change(id, "requeue"))


def _hold_jobs(words: Sequence[str]) -> int:
    return _change_each_job(words, lambda head, id: head.change(id, "suspend"))


def _release_jobs(words: Sequence[str]) -> int:
    return _change_each_job(words, lambda head, id: head.change(id, "resume"))


def _update_jobs(words: Sequence[str]) -> int:
    """Update waiting jobs. Raises: SlurmRefusal."""
    stated_changes = dict(assignment.partition("=")[::2] for assignment in words)
    changes_by_name = {name.lower(): value for name, value in stated_changes.items()}
    ids = changes_by_name.pop("jobid", None) or changes_by_name.pop("job", None)
    if not ids:
        raise SlurmRefusal(
            "update requires JobId=ID: only jobs can be updated",
            hint="run: scontrol update JobId=17 NAME=VALUE",
        )
    changes = [change_of(name, value) for name, value in changes_by_name.items()]
    if not changes:
        raise SlurmRefusal("No changes specified")
    body = {name: value for name, value in changes}
    return _change_each_job(
        [ids], lambda head, id: head.ask("PATCH", f"/v1/jobs/{id}", body=body)
    )


def change_of(name: str, value: str) -> tuple[str, object]:
    """Return (field of a job, its new value) for an option of `scontrol update`. `name`
    is the option in lower case.

    Raises: SlurmRefusal for an option or value that cannot be changed.
    """
    if name in ("timelimit", "timemin"):
        seconds = value_forms.seconds(value, "TimeLimit")
        if seconds is None or value[:1] in "+-":
            raise SlurmRefusal(
                f"TimeLimit={value} is not supported; write the whole limit, as 1:30:00"
            )
        return "max_duration_seconds", float(seconds)
    if name in ("partition", "account"):
        return "queue", value
    if name in ("jobname", "name"):
        return "name", plain_name(value)
    if name == "priority":
        return "priority", value_forms.count(value, "Priority", least=0)
    if name == "nice":
        return "priority", -int(value) if value.lstrip("-").isdecimal() else 0
    raise SlurmRefusal(
        f"Update of this parameter is not supported: {name}={value}",
        before=None,
        hint="change TimeLimit, Partition, JobName, Priority or Nice of a waiting job; for "
        "other changes cancel the job and submit it again",
    )


def _ping_controller(words: Sequence[str]) -> int:
    url = HeadClient().ask("GET", "/v1/status")["head"]["url"]
    print(f"Slurmctld(primary) at {url} is UP")
    return 0


_COMMANDS: Final[dict[str, Callable[[Sequence[str]], int]]] = {
    "requeue": _requeue_jobs,
    "update": _update_jobs,
    "hold": _hold_jobs,
    "uhold": _hold_jobs,
    "release": _release_jobs,
    "ping": _ping_controller,
}
