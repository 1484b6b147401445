"""Corral's own batch jobs in squeue and sacct, and what others hold alongside them.

Source: squeue(1) and sacct(1) of Slurm 22.05. Times are asked for in seconds since
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
    """One batch job, or one task of an array: `task` is its index, and `id` the array's
    number. `is_preempted`: Slurm ends it for another, or has.

    `*_each`: what it holds on each of its nodes.
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
        """Return the id for scancel."""
        return str(self.id) if self.task is None else f"{self.id}_{self.task}"

    def key(self, cluster: str) -> AttemptKey | None:
        """The attempt of this cluster that it is; None for another's."""
        return key_of(self.name, cluster, self.task)

    @property
    def is_over(self) -> bool:
        return self.state in OVER

    @property
    def waits(self) -> bool:
        return self.state in WAITING


def queued_jobs(text: str) -> tuple[SlurmJob, ...]:
    """Corral's of squeue's lines, in its order; others may be named as nothing here can
    be.

    Raises: ValueError for what squeue does not print.
    """
    lines = (line.split("|") for line in text.splitlines())
    return tuple(
        _parse_queued_job(squeue_columns)
        for squeue_columns in lines
        if squeue_columns[1:] and squeue_columns[1].startswith(PREFIX)
    )


def past_jobs(text: str) -> tuple[SlurmJob, ...]:
    """The lines of `sacct -n -P -X`. Raises: ValueError."""
    past = []
    for line in text.splitlines():
        sacct_fields = line.split("|")
        if len(sacct_fields) != len(SACCT_FORMAT.split(",")):
            raise ValueError(f"sacct printed {line!r}")
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
        raise ValueError(f"squeue printed {'|'.join(words)!r}")
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
    """Slurm counts in powers of 1024, and writes them as K, M, G and T."""
    return bytes_of(text if text[-1:].isdigit() else f"{text}iB")


def tickets_of(
    jobs: Iterable[SlurmJob], cluster: str, *, slurm_places: bool = False
) -> tuple[Ticket, ...]:
    """Return Slurm's report about each attempt of this cluster. Of several batch jobs
    with one name, which only a lost answer can cause, the most advanced one counts."""
    jobs_by_key: dict[AttemptKey, SlurmJob] = {}
    for job in sorted(jobs, key=_progress_sort_key):
        if (key := job.key(cluster)) is not None:
            jobs_by_key[key] = job
    return tuple(
        _ticket_from_job(key, job, slurm_places) for key, job in jobs_by_key.items()
    )


def doubles_of(jobs: Iterable[SlurmJob], cluster: str) -> tuple[str, ...]:
    """Waiting batch jobs alongside another of the same name: the one that speaks is
    left."""
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
    """Running goes before over, and over before waiting; of two alike the first
    submitted."""
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
    """Return what others hold of the node.

    The nodes are asked before the jobs: one that began in between is taken for
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
    """Return the queue's jobs, and those that only the accounting still has."""
    queued_keys = {(job.name, job.task) for job in queued}
    return (*queued, *(job for job in past if (job.name, job.task) not in queued_keys))


def without_strays(
    jobs: Sequence[SlurmJob], cluster: str, names: Mapping[AttemptKey, str]
) -> tuple[tuple[SlurmJob, ...], tuple[str, ...]]:
    """The jobs that count, and the handles of those that must go. `names`: what the
    batch job of each attempt is called that has a folder.

    Of an attempt that was asked for again an older batch job must go. What is over and
    has no folder any more has been recorded, and counts no more.
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
