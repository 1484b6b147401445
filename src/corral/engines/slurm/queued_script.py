"""The batch script of jobs that Slurm places: it names no nodes, and waits for the
files that its agents need.

One script serves one job, or all indices of an array that are submitted together.
Source: sbatch(1) of Slurm 22.05, "Job Array Support".
"""

from collections.abc import Sequence
from dataclasses import dataclass
from shlex import quote
from typing import Final

from corral.domain.external_candidate import ExternalCandidate
from corral.domain.ids import NodeId
from corral.domain.observed_state import AttemptKey
from corral.engines.slurm.batch_script import (
    agents_of,
    common,
    shape_of,
    text_of,
    time_of,
)
from corral.engines.slurm.folders import BEGUN, GO, NAME
from corral.engines.slurm.names import job_name
from corral.engines.slurm.settings import SlurmSettings

LOOK_SECONDS: Final = 0.2
# for a head that is away; then its nodes are better used by others
WAIT_SECONDS: Final = 600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Grounds:
    """What the batch script needs: the folder of all attempts (`root`), the Python of
    their agents, and the cluster's nodes.

    `nodes`: all nodes from which Slurm may choose. `gpu_types`: the types as Slurm
    writes them.
    """

    root: str
    python: str
    nodes: tuple[NodeId, ...]
    gpu_types: frozenset[str]
    most_memory_bytes: int


def batch_name(group: Sequence[ExternalCandidate], cluster: str, tag: str) -> str:
    """Return the name of the group's batch job, from the id of its job or its whole
    array. `tag`: distinguishes repeated submissions."""
    return job_name(cluster, _key_of(group), tag)


def asking_script_of(
    group: Sequence[ExternalCandidate],
    *,
    name: str,
    settings: SlurmSettings,
    grounds: Grounds,
) -> str:
    """Return the batch script with which Slurm is asked to place the group: one job, or
    equal indices of one array."""
    first_candidate = group[0]
    log = f"{grounds.root}/{_key_of(group)[0]}".replace("%", "%%")
    log += f"{'_%a' if _is_array(group) else ''}.{first_candidate.key[1]}"
    about = f"{_key_of(group)[0]} {first_candidate.spec.kin}"
    options = [
        *common(name, about=about, log=log, settings=settings),
        *_array_options(group),
        *_resource_options(first_candidate, grounds),
        *settings.lines,
    ]
    return text_of(options, _script_body(group, name, grounds))


def _is_array(group: Sequence[ExternalCandidate]) -> bool:
    return len(group) > 1


def _key_of(group: Sequence[ExternalCandidate]) -> AttemptKey:
    first_candidate = group[0]
    return (
        (first_candidate.array, first_candidate.key[1])
        if _is_array(group) and first_candidate.array
        else first_candidate.key
    )


def _array_options(group: Sequence[ExternalCandidate]) -> list[str]:
    if not _is_array(group):
        return []
    indices = ",".join(
        str(external_candidate.spec.array_index) for external_candidate in group
    )
    limit = group[0].spec.array_limit
    return [f"--array={indices}" + (f"%{limit}" if limit is not None else "")]


def _resource_options(one: ExternalCandidate, grounds: Grounds) -> list[str]:
    resources = one.shape.resources
    kinds = {kind for kind in grounds.gpu_types if kind.lower() == resources.gpu_type}
    kind = f":{min(kinds)}" if kinds else ""
    excluded = [node for node in one.excluded if node in grounds.nodes]
    return [
        *time_of(one.spec.max_duration_seconds, one.spec.grace_seconds),
        *([f"--exclude={','.join(excluded)}"] if excluded else []),
        *shape_of(
            one.shape.nodes,
            cpu_millis=resources.cpu_millis,
            memory_bytes=resources.memory_bytes,
            most_memory_bytes=grounds.most_memory_bytes,
            exclusive=one.spec.place.exclusive,
            gres=f"gpu{kind}:{resources.gpus}" if resources.gpus else "",
        ),
    ]


def _script_body(
    group: Sequence[ExternalCandidate], name: str, grounds: Grounds
) -> list[str]:
    """Return the commands of the script. It waits until the head has recorded on which
    nodes it runs and has written the files that its agents need. A script whose attempt
    was submitted again, or has begun already, starts nothing."""
    first_candidate = group[0]
    root = quote(f"{grounds.root}/{_key_of(group)[0]}")
    task = '"_$SLURM_ARRAY_TASK_ID"' if _is_array(group) else ""
    looks = round(WAIT_SECONDS / LOOK_SECONDS)
    return [
        f"export CORRAL_PLACE={root}{task}.{first_candidate.key[1]}",
        f'for (( i = 0; i < {looks}; i++ )); do [ -d "$CORRAL_PLACE" ] || exit 0; '
        f'[ -e "$CORRAL_PLACE"/{GO} ] && break; sleep {LOOK_SECONDS:g}; done',
        f'[ "$(cat "$CORRAL_PLACE"/{NAME})" = {name} ] || exit 0',
        f'[ -e "$CORRAL_PLACE"/{GO} ] && mkdir "$CORRAL_PLACE"/{BEGUN} || exit 0',
        agents_of(first_candidate.shape.nodes, '"$CORRAL_PLACE"', grounds.python),
    ]
