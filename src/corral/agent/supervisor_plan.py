"""From what the head wants to what a shim is told."""

import hashlib
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from corral.agent import environment
from corral.agent.shim.plan import Plan
from corral.domain.facts import AttemptKey
from corral.domain.job import Per
from corral.domain.wanted import Launch
from corral.wire.node import NodeSettings

PIDS_PER_GPU: Final = 4096  # processes and threads; a data loader's workers are far below it
_PID_MAX: Final = Path("/proc/sys/kernel/pid_max")
_NVIDIA: Final = Path("/dev/nvidiactl")


def folder_of(node_dir: Path, key: AttemptKey) -> Path:
    return node_dir / "attempts" / f"{key[0]}.{key[1]}"


def group_prefix(node_dir: Path, node: str) -> str:
    """Begins the names of the node's groups, and of no other node's on this machine."""
    return f"{node}-{hashlib.sha256(os.fsencode(node_dir)).hexdigest()[:8]}"


def plan_of(
    launch: Launch,
    *,
    node_dir: Path,
    work: Path,
    env: Mapping[str, str],
    settings: NodeSettings,
    containment: str,
) -> Plan:
    """`env` is what only the node knows, and the secrets; it wins over what the launch says."""
    job, attempt = launch.key
    per_node = launch.per == Per.NODE
    ranks = 1 if per_node else launch.ranks
    first = launch.node_rank if per_node else launch.first_rank
    return Plan(
        job=job,
        attempt=attempt,
        node=settings.node,
        folder=str(folder_of(node_dir, launch.key)),
        work=str(work),
        run=launch.run,
        setup=launch.setup,
        env={**environment.of_attempt(launch, settings, host=os.environ), **env},
        rank_env=[environment.of_rank(launch, index) for index in range(ranks)],
        ranks=list(range(first, first + ranks)),
        user=launch.owner or None,
        containment=containment,
        group=f"{group_prefix(node_dir, settings.node)}.{job}.{attempt}",
        pids=_pids(max(ranks, len(launch.seat.gpus))),
        cpu_millis=launch.seat.cpu_millis,
        memory_bytes=launch.seat.memory_bytes,
        devices=_devices(launch, settings),
    )


def _pids(gpus: int) -> int:
    """4096 a GPU, and never more than a quarter of what the machine has."""
    try:
        most = int(_PID_MAX.read_text()) // 4
    except (OSError, ValueError):
        most = PIDS_PER_GPU
    return min(PIDS_PER_GPU * gpus, most)


def _devices(launch: Launch, settings: NodeSettings) -> list[int] | None:
    """Minors of the only GPUs that may be opened; None where there is none to keep from."""
    if settings.pretend_gpus is not None or not _NVIDIA.exists():
        return None
    chosen = settings.real_gpus
    return [index if chosen is None else chosen[index] for index in launch.seat.gpus]
