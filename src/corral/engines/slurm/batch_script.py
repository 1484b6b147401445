"""The batch script of one attempt, as pure text; the same attempt always has the same
script.

Source: sbatch(1) and srun(1) of Slurm 22.05.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import ceil
from shlex import quote
from typing import Final

from corral.domain.desired_state import Launch
from corral.domain.ids import NodeId
from corral.domain.units import MILLIS_PER_CPU
from corral.engines.slurm.folders import BEGUN
from corral.engines.slurm.names import job_name
from corral.engines.slurm.settings import SlurmSettings

_MIB: Final = 1024**2
# of an agent and its shim, which Slurm counts with what they run
AGENT_MIB: Final = 256
# an attempt's start, and its end: all ranks gone, all logs sent
AROUND_SECONDS: Final = 120.0


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptPaths:
    """What a batch script needs: the folder of the attempt's files, the Python of its
    agents, and capacities of its nodes. `gpu_types`: the types of each node's GPUs by
    index; "" where Slurm names no type. `memory_bytes`: the whole memory of each node.
    """

    folder: str
    python: str
    gpu_types: Mapping[NodeId, tuple[str, ...]]
    memory_bytes: Mapping[NodeId, int]


def script_of(
    gang: Sequence[Launch],
    *,
    cluster: str,
    settings: SlurmSettings,
    place: AttemptPaths,
) -> str:
    """Return the script for sbatch. `gang` is in the order of node ranks. The script
    contains no secret."""
    first_launch = gang[0]
    options = [
        *common(
            job_name(cluster, first_launch.key),
            about=f"{first_launch.key[0]} {first_launch.job_name}",
            log=place.folder.replace("%", "%%"),  # %j is a number
            settings=settings,
        ),
        *time_of(first_launch.limit_seconds, first_launch.grace_seconds),
        *_resource_options(gang, place),
        *settings.lines,
    ]
    return text_of(options, _script_body(gang, place))


def text_of(options: Iterable[str], body: Iterable[str]) -> str:
    """Return a script with these options for sbatch and this body."""
    return "\n".join(
        ["#!/bin/bash", *(f"#SBATCH {option}" for option in options), "", *body, ""]
    )


def common(name: str, *, about: str, log: str, settings: SlurmSettings) -> list[str]:
    """Return the sbatch options that every batch job has. `about`: the job's comment.
    `log`: the folder of the job's output, escaped for sbatch."""
    chosen = ("partition", "account", "qos", "reservation")
    option_values = [(option, getattr(settings, option)) for option in chosen]
    return [
        f"--job-name={name}",
        f"--comment={quote(f'corral {about}')}",
        f"--output={quote(f'{log}/slurm.log')}",
        "--open-mode=append",
        "--chdir=/",
        "--no-requeue",  # Corral tries again by itself, from the newest save
        *(f"--{option}={quote(value)}" for option, value in option_values if value),
    ]


def time_of(limit_seconds: float | None, grace_seconds: float) -> list[str]:
    """Return the option with the time limit for Slurm's backfill, in whole minutes as
    Slurm counts; [] without a limit. The time is never shorter than the time that
    Corral gives the attempt, so Corral ends the attempt first."""
    if limit_seconds is None:
        return []
    return [f"--time={ceil((limit_seconds + grace_seconds + AROUND_SECONDS) / 60)}"]


def _resource_options(gang: Sequence[Launch], place: AttemptPaths) -> list[str]:
    """Return the sbatch options for the gang's nodes and the resources on each. All
    nodes of a gang get equal resources."""
    seat = gang[0].seat
    shape = [f"--nodelist={','.join(launch.seat.node for launch in gang)}"]
    max_memory_bytes = min(
        place.memory_bytes.get(launch.seat.node, 0) for launch in gang
    )
    return shape + shape_of(
        len(gang),
        cpu_millis=seat.cpu_millis,
        memory_bytes=seat.memory_bytes,
        most_memory_bytes=max_memory_bytes,
        exclusive=seat.exclusive,
        gres=_format_gres(gang, place) if seat.gpus else "",
    )


def shape_of(
    nodes: int,
    *,
    cpu_millis: int,
    memory_bytes: int,
    most_memory_bytes: int,
    exclusive: bool,
    gres: str,
) -> list[str]:
    """Return the options for the number of nodes and the resources on each.
    `most_memory_bytes`: the most memory that one node can have; 0: unknown."""
    shape = [
        f"--nodes={nodes}",
        f"--ntasks={nodes}",
        "--ntasks-per-node=1",
        f"--cpus-per-task={max(1, ceil(cpu_millis / MILLIS_PER_CPU))}",
    ]
    if memory_bytes:
        asked_mib = ceil(memory_bytes / _MIB) + AGENT_MIB
        shape.append(f"--mem={min(asked_mib, most_memory_bytes // _MIB or asked_mib)}M")
    if exclusive:
        shape.append("--exclusive")
    if gres:
        shape.append(f"--gres={gres}")
    return shape


def _format_gres(gang: Sequence[Launch], place: AttemptPaths) -> str:
    """Return the value of the gres option. The type of the GPUs is named only if all
    GPUs of the gang are of one type."""
    types = {
        place.gpu_types[launch.seat.node][index]
        for launch in gang
        for index in launch.seat.gpus
    }
    kind = f":{types.pop()}" if len(types) == 1 and types != {""} else ""
    return f"gpu{kind}:{len(gang[0].seat.gpus)}"


def _script_body(gang: Sequence[Launch], place: AttemptPaths) -> list[str]:
    """Return the commands of the script: one agent runs on each node and ends when its
    attempt is over; then the batch job ends too."""
    folder = quote(place.folder)
    return [
        f"mkdir {folder}/{BEGUN} || exit 0",
        agents_of(len(gang), folder, place.python),
    ]


def agents_of(nodes: int, folder: str, python: str) -> str:
    """Return the command that starts the agents on all nodes. `folder`: in bash syntax,
    valid on every node."""
    agent = (
        f'exec {quote(python)} -P -m corral.agent --part {folder}/"$SLURMD_NODENAME"'
    )
    if nodes == 1:
        return agent
    step = f"srun --ntasks={nodes} --ntasks-per-node=1 --kill-on-bad-exit=0 --wait=0"
    return f"exec {step} --cpu-bind=none --mpi=none bash -c {quote(agent)}"
