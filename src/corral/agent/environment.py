"""The environment of a rank, as docs/architecture.md lists it."""

import json
from collections.abc import Mapping
from typing import Final

from corral.domain.job import Per
from corral.domain.wanted import Launch
from corral.wire.node import NodeSettings

PASSED_ON: Final = ("PATH", "LANG", "LC_ALL", "TZ", "HOME", "USER", "LOGNAME", "SHELL", "TMPDIR",
                    "LD_LIBRARY_PATH", "VIRTUAL_ENV", "CONDA_PREFIX", "SSL_CERT_FILE")  # fmt: skip


def of_attempt(
    launch: Launch, settings: NodeSettings, *, host: Mapping[str, str]
) -> dict[str, str]:
    """What all ranks of a node share. `host` is the agent's own environment.

    What the job set itself wins over the host's, and Corral's own names win over both.
    """
    passed_on = {name: host[name] for name in PASSED_ON if name in host}
    return {
        **passed_on,
        "PYTHONUNBUFFERED": "1",  # a pipe would hold lines back that `logs -f` should show
        **dict(launch.env),
        **_gang(launch),
        **_gpus(launch, settings),
        **_corral(launch, settings),
        **_checkpoint(launch),
        **_slurm(launch),
    }


def of_rank(launch: Launch, index: int) -> dict[str, str]:
    """What only the `index`-th rank of the node is told."""
    per_node = launch.per == Per.NODE
    rank = launch.node_rank if per_node else launch.first_rank + index
    return {
        "RANK": str(rank),
        "LOCAL_RANK": str(index),
        "SLURM_PROCID": str(rank),
        "SLURM_LOCALID": str(index),
    }


def _gang(launch: Launch) -> dict[str, str]:
    per_node = launch.per == Per.NODE
    return {
        "MASTER_ADDR": launch.master_address,
        "MASTER_PORT": str(launch.master_port),
        "WORLD_SIZE": str(len(launch.nodes) if per_node else launch.world_size),
        "LOCAL_WORLD_SIZE": str(1 if per_node else launch.ranks),
        "NODE_RANK": str(launch.node_rank),
    }


def _gpus(launch: Launch, settings: NodeSettings) -> dict[str, str]:
    """Parts of a cut GPU go by the vendor's names of them, whole GPUs by their indices."""
    if launch.seat.slices:
        return {"CUDA_VISIBLE_DEVICES": ",".join(launch.seat.slices)}
    visible = launch.seat.gpus
    if settings.pretend_gpus is None and settings.real_gpus is not None:
        visible = tuple(settings.real_gpus[index] for index in visible)  # the machine's indices
    return {
        "CUDA_DEVICE_ORDER": "PCI_BUS_ID",  # the order that the indices were counted in
        "CUDA_VISIBLE_DEVICES": ",".join(map(str, visible)),
    }


def _corral(launch: Launch, settings: NodeSettings) -> dict[str, str]:
    job, attempt = launch.key
    index = {} if launch.array_index is None else {"CORRAL_ARRAY_INDEX": str(launch.array_index)}
    return {
        "CORRAL_JOB_ID": job,
        "CORRAL_JOB_NAME": launch.job_name,
        "CORRAL_ATTEMPT": str(attempt),
        "CORRAL_NODE": settings.node,
        "CORRAL_NODES": ",".join(launch.nodes),
        **index,
    }


def _checkpoint(launch: Launch) -> dict[str, str]:
    rule = launch.checkpoint
    if rule is None:
        return {}
    resume = [
        {
            "step": save.step,
            "attempt": save.attempt,
            "path": save.path,
            "manifest_sha256": save.manifest_sha256,
        }
        for save in launch.resume
    ]
    interval = "auto" if rule.interval_seconds is None else f"{rule.interval_seconds:g}"
    return {
        "CORRAL_CHECKPOINT_PATH": rule.path,
        "CORRAL_CHECKPOINT_INTERVAL": interval,
        "CORRAL_CHECKPOINT_KEEP": str(rule.keep),
        "CORRAL_NODE_MTBF_SECONDS": f"{launch.node_mtbf_seconds:g}",
        "CORRAL_RESUME": json.dumps(resume),
    }


def _slurm(launch: Launch) -> dict[str, str]:
    """The names that libraries look for."""
    tasks = len(launch.nodes) if launch.per == Per.NODE else launch.world_size
    index = {} if launch.array_index is None else {"SLURM_ARRAY_TASK_ID": str(launch.array_index)}
    return {
        "SLURM_JOB_ID": launch.key[0],
        "SLURM_JOB_NAME": launch.job_name,
        "SLURM_NODEID": str(launch.node_rank),
        "SLURM_NTASKS": str(tasks),
        "SLURM_NNODES": str(len(launch.nodes)),
        "SLURM_JOB_NUM_NODES": str(len(launch.nodes)),
        "SLURM_JOB_NODELIST": ",".join(launch.nodes),
        "SLURM_GPUS_ON_NODE": str(len(launch.seat.gpus)),
        **index,
    }
