"""Corral's own batch jobs in squeue and sacct, and what other jobs hold on the same
nodes.

Source: squeue(1) and sacct(1) of Slurm 22.05. Times are requested in seconds since
1970.
"""

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from corral.domain.ids import NodeId
from corral.domain.observed_state import AttemptKey
from corral.domain.units import bytes_of
from corral.engines.batch.interfaces import Foreign, Ticket, TicketState
from corral.engines.slurm.names import PREFIX, job_name, key_of, names_of
from corral.engines.slurm.nodes import SlurmNode, cpu_millis_of
from corral.engines.slurm.reasons import (
    OVER,
    WAITING,
    how_ended,
    whose_doing,
    why_waits,
)

FIELDS: Final = (
    "JobID",
    "Name",
    "State",
    "NodeList",
    "Reason",
    "StartTime",
    "RestartCnt",
    "tres-alloc",
    "tres-per-node",
    "ArrayJobID",
    "ArrayTaskID",
    "PreemptTime",
)
SQUEUE_FORMAT: Final = ",".join(f"{field}:|" for field in FIELDS)
SACCT_FORMAT: Final = "JobID,JobName,State,NodeList"
_GPUS: Final = re.compile(r"gpu(?:[:=][A-Za-z][\w.-]*)?[:=](\d+)", re.ASCII)


@dataclass(frozen=True, slots=True, kw_only=True)
class SlurmJob:
    """One batch job, or one task of an array; for a task, `task` is its index and `id`
    the array's id. `is_preempted`: Slurm ends the job in favour of another job, or has
    ended it.

    `*_each`: what the job holds on each of its nodes.
    """

    id: int
    name: str
    state: str
    nodes: tuple[str, ...]
    task: int | None = None
    reason: str = ""
    starts_at: float | None = None
    restarts: int = 0
    is_preempted: bool = False
    gpus_each: int = 0
    cpus_each: int = 0
    memory_bytes_each: int = 0

    @property
    def handle(self) -> str:
        """Return the job's id for scancel."""
        return str(self.id) if self.task is None else f"{self.id}_{self.task}"

    def key(self, cluster: str) -> AttemptKey | None:
        """Return the attempt of this cluster that the batch job runs; None for a job of
        another cluster."""
        return key_of(self.name, cluster, self.task)

    @property
    def is_over(self) -> bool:
        return self.state in OVER

    @property
    def waits(self) -> bool:
        return self.state in WAITING


def queued_jobs(text: str) -> tuple[SlurmJob, ...]:
    """Parse Corral's batch jobs from the output of squeue, in its order. Other users'
    jobs are skipped unread, since their names may have any form.

    Raises: ValueError for a line that squeue does not print.
    """
    lines = (line.split("|") for line in text.splitlines())
    return tuple(
        _parse_queued_job(squeue_columns)
        for squeue_columns in lines
        if squeue_columns[1:] and squeue_columns[1].startswith(PREFIX)
    )


def past_jobs(text: str) -> tuple[SlurmJob, ...]:
    """Parse the output of `sacct -n -P -X`. Raises: ValueError for a line that does
    not have the columns of SACCT_FORMAT."""
    past = []
    for line in text.splitlines():
        sacct_fields = line.split("|")
        if len(sacct_fields) != len(SACCT_FORMAT.split(",")):
            raise ValueError(
                f"sacct printed a line that does not have the requested columns: {line!r}"
            )
        id, name, state, nodes = sacct_fields
        number, _, task = id.partition("_")
        if task.startswith("["):
            continue  # tasks that have not begun: the queue shows them one by one
        past.append(
            SlurmJob(
                id=int(number),
                task=int(task) if task else None,
                name=name,
                state=state.split()[0],  # "CANCELLED by 1000"
                nodes=names_of(nodes),
            )
        )
    return tuple(past)


def _parse_queued_job(words: Sequence[str]) -> SlurmJob:
    if len(words) != len(FIELDS) + 1:
        raise ValueError(
            "squeue printed a line that does not have the requested columns: "
            f"{'|'.join(words)!r}"
        )
    stripped = (field_text.strip() for field_text in words[:-1])
    (
        id,
        name,
        state,
        node_list,
        reason,
        starts,
        restarts,
        holds,
        tres_per_node,
        array,
        task,
        preempted,
    ) = stripped
    nodes = names_of(node_list)
    held_amounts = dict(
        tres_entry.partition("=")[::2]
        for tres_entry in holds.split(",")
        if "=" in tres_entry
    )
    count = max(len(nodes), 1)
    return SlurmJob(
        id=int(array if task.isdigit() else id),
        task=int(task) if task.isdigit() else None,
        name=name,
        state=state,
        nodes=nodes,
        reason=reason,
        starts_at=float(starts) if starts.isdigit() else None,
        restarts=int(restarts or 0),
        is_preempted=preempted.isdigit(),
        gpus_each=gpus_in(tres_per_node),
        cpus_each=int(held_amounts.get("cpu", 0)) // count,
        memory_bytes_each=memory_bytes_of(held_amounts.get("mem", "0")) // count,
    )


def gpus_in(each: str) -> int:
    """Return how many GPUs "gres:gpu:h100:2" requests on each node."""
    return sum(int(gpu_count) for gpu_count in _GPUS.findall(each))


def memory_bytes_of(text: str) -> int:
    """Return the bytes of an amount of memory. Slurm counts in powers of 1024, and
    writes them as K, M, G and T."""
    return bytes_of(text if text[-1:].isdigit() else f"{text}iB")


def tickets_of(
    jobs: Iterable[SlurmJob], cluster: str, *, slurm_places: bool = False
) -> tuple[Ticket, ...]:
    """Return one ticket for each attempt of this cluster, from Slurm's batch jobs.
    `slurm_places`: Slurm, and not Corral, chooses the nodes. If several batch jobs have
    one name, which only a lost answer to a submission can cause, the most advanced job
    counts."""
    jobs_by_key: dict[AttemptKey, SlurmJob] = {}
    for job in sorted(jobs, key=_progress_sort_key):
        if (key := job.key(cluster)) is not None:
            jobs_by_key[key] = job
    return tuple(
        _ticket_from_job(key, job, slurm_places) for key, job in jobs_by_key.items()
    )


def doubles_of(jobs: Iterable[SlurmJob], cluster: str) -> tuple[str, ...]:
    """Return the handles of the batch jobs that must be cancelled because another batch
    job of the same name is more advanced. That job is the one that is reported."""
    by_key: defaultdict[AttemptKey, list[SlurmJob]] = defaultdict(list)
    for job in sorted(jobs, key=_progress_sort_key):
        if (key := job.key(cluster)) is not None:
            by_key[key].append(job)
    return tuple(
        job.handle
        for same_name_jobs in by_key.values()
        for job in same_name_jobs[:-1]
        if not job.is_over
    )


def _progress_sort_key(job: SlurmJob) -> tuple[int, int]:
    """Return the sort key of a job's progress: a running job is ahead of one that is
    over, and that one is ahead of a waiting job. Of two equal jobs the one submitted
    first is ahead."""
    progress_rank = 2 if not job.waits and not job.is_over else 1 if job.is_over else 0
    return progress_rank, -job.id


def _ticket_from_job(key: AttemptKey, job: SlurmJob, slurm_places: bool) -> Ticket:
    restarted = job.restarts > 0
    state = TicketState.RUNNING
    if job.is_over or restarted:
        state = TicketState.ENDED
    elif job.waits:
        state = TicketState.WAITING
    end_state = "PREEMPTED" if job.is_preempted and not restarted else job.state
    blame, infra = how_ended(end_state, restarted=restarted)
    reason = ""
    if state == TicketState.WAITING:
        reason = why_waits(job.reason, job.starts_at, slurm_places=slurm_places)
    return Ticket(
        key=key,
        handle=job.handle,
        state=state,
        nodes=tuple(NodeId(name) for name in job.nodes),
        reason=reason,
        blame=blame if state == TicketState.ENDED or job.is_preempted else "",
        blame_is_infra=infra,
        blame_on=whose_doing(end_state, restarted=restarted),
    )


def foreign_of(node: SlurmNode, jobs: Iterable[SlurmJob], cluster: str) -> Foreign:
    """Return what other programs hold on the node: its usage without the jobs of this
    cluster.

    The nodes are queried before the jobs, so a job that began in between counts as
    Corral's.
    """
    slurm_jobs = [
        job
        for job in jobs
        if node.name in job.nodes and not job.is_over and job.key(cluster) is not None
    ]
    cpus = node.used_cpus - sum(job.cpus_each for job in slurm_jobs)
    return Foreign(
        gpus=max(node.used_gpus - sum(job.gpus_each for job in slurm_jobs), 0),
        cpu_millis=cpu_millis_of(max(cpus, 0)),
        memory_bytes=max(
            node.used_memory_bytes - sum(job.memory_bytes_each for job in slurm_jobs), 0
        ),
    )


def merged(
    queued: Sequence[SlurmJob], past: Iterable[SlurmJob]
) -> tuple[SlurmJob, ...]:
    """Return the queue's jobs, followed by those that only the accounting still has."""
    queued_keys = {(job.name, job.task) for job in queued}
    return (*queued, *(job for job in past if (job.name, job.task) not in queued_keys))


def without_strays(
    jobs: Sequence[SlurmJob], cluster: str, names: Mapping[AttemptKey, str]
) -> tuple[tuple[SlurmJob, ...], tuple[str, ...]]:
    """Return the jobs that count, and the handles of those that must be cancelled.
    `names`: the name of the batch job of each attempt that has a folder.

    If an attempt was submitted again, its older batch job must be cancelled. A job that
    is over and has no folder was recorded earlier, and does not count any more.
    """
    counts: list[SlurmJob] = []
    strays: list[str] = []
    for job in jobs:
        key = job.key(cluster)
        if key is None or names.get(key, job_name(cluster, key)) == job.name:
            if key is None or key in names or not job.is_over:
                counts.append(job)
        elif not job.is_over:
            strays.append(job.handle)
    return tuple(counts), tuple(strays)
