"""The environment variables of a rank, as listed in docs/architecture/overview.md."""

import json
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from corral.domain.desired_state import Launch
from corral.domain.job import Per
from corral.domain.keep_rule import KeepRule
from corral.domain.pilot import node_of
from corral.domain.units import MILLIS_PER_CPU, gpus_text
from corral.wire.framework_clusters import cluster_of_rank
from corral.wire.node import NodeSettings
from corral.wire.slurm.hostlist import compress
from corral.wire.slurm.ids import number_of, raw_of
from corral.wire.tracking_environment import tracking_of_attempt, tracking_of_rank


def of_attempt(launch: Launch, settings: NodeSettings) -> dict[str, str]:
    """Return the variables that all ranks of a node share. Variables that Corral sets
    override those of the job."""
    return {
        # a pipe would hold lines back that `logs -f` should show
        "PYTHONUNBUFFERED": "1",
        # for requests to the head and to the gateway, which has the same certificate
        **({} if settings.trusted is None else {"CORRAL_CA": str(settings.trusted)}),
        **dict(launch.env),
        **_gang_variables(launch),
        **_gpu_variables(launch, settings),
        **_corral_variables(launch, settings),
        **_replica_variables(launch),
        **_checkpoint(launch),
        **tracking_of_attempt(launch),
        **_slurm_variables(launch, settings),
    }


def of_node(
    launch: Launch, *, shared: Sequence[str], gpu_type: str, pretend: bool
) -> dict[str, str]:
    """Return the variables from the node's settings, for example the type of the GPUs
    that the attempt has on the node (`gpu_type`)."""
    return {
        "CORRAL_SHARED": shared[0] if shared else "",
        "CORRAL_GPUS": gpus_text(launch.seat.gpu_millis),
        "CORRAL_GPU_TYPE": gpu_type,
        "CORRAL_PRETEND_GPUS": "1" if pretend else "0",
    }


def of_rank(launch: Launch, index: int) -> dict[str, str]:
    """Return the variables of the `index`-th rank of the node alone.

    A program that is started once on a node of several GPUs starts its own processes.
    Lightning does so only if LOCAL_RANK and Slurm's names of ranks are not set.
    """
    if launch.per == Per.NODE:
        rank_variables = {"RANK": str(launch.node_rank)}
        if len(launch.seat.gpus) <= 1:
            rank_variables["LOCAL_RANK"] = "0"
        return rank_variables | _framework_variables(launch, launch.node_rank)
    rank = str(launch.first_rank + index)
    return _framework_variables(launch, launch.first_rank + index) | {
        "RANK": rank,
        "LOCAL_RANK": str(index),
        "SLURM_PROCID": rank,
        "SLURM_LOCALID": str(index),
    }


def _framework_variables(launch: Launch, rank: int) -> dict[str, str]:
    """Return the variables of a rank for frameworks and experiment trackers."""
    return cluster_of_rank(launch, rank) | tracking_of_rank(launch, rank)


def _gang_variables(launch: Launch) -> dict[str, str]:
    per_node = launch.per == Per.NODE
    return {
        "MASTER_ADDR": launch.master_address,
        "MASTER_PORT": str(launch.master_port),
        "WORLD_SIZE": str(len(launch.nodes) if per_node else launch.world_size),
        "LOCAL_WORLD_SIZE": str(1 if per_node else launch.ranks),
        "NODE_RANK": str(launch.node_rank),
    }


def _gpu_variables(launch: Launch, settings: NodeSettings) -> dict[str, str]:
    """Return the variables that select GPUs. Slices of a partitioned GPU are given by
    the vendor's names, whole GPUs by their indices."""
    if launch.seat.slices:
        return {"CUDA_VISIBLE_DEVICES": ",".join(launch.seat.slices)}
    visible = launch.seat.gpus
    if settings.pretend_gpus is None and settings.real_gpus is not None:
        # the machine's indices
        visible = tuple(settings.real_gpus[index] for index in visible)
    indices = ",".join(map(str, visible))
    cuda_variables = {
        "CUDA_DEVICE_ORDER": "PCI_BUS_ID",  # the order that the indices were counted in
        "CUDA_VISIBLE_DEVICES": indices,
    }
    return cuda_variables | (
        {"HIP_VISIBLE_DEVICES": indices} if settings.amd_gpus else {}
    )


def _corral_variables(launch: Launch, settings: NodeSettings) -> dict[str, str]:
    job, attempt = launch.key
    index = (
        {}
        if launch.array_index is None
        else {"CORRAL_ARRAY_INDEX": str(launch.array_index)}
    )
    return {
        "CORRAL_JOB_ID": job,
        "CORRAL_JOB_NAME": launch.job_name,
        "CORRAL_ATTEMPT": str(attempt),
        "CORRAL_NODE": node_of(settings.node),
        "CORRAL_NODES": ",".join(launch.nodes),
        **index,
    }


def _replica_variables(launch: Launch) -> dict[str, str]:
    """Return the variables of a replica of a service: its service and number, the
    address at which its first node listens, and the key that its engine requires."""
    replica = launch.replica
    if replica is None:
        return {}
    transfer_port = replica.transfer_port
    transfer = (
        {} if transfer_port is None else {"CORRAL_TRANSFER_PORT": str(transfer_port)}
    )
    role = {"CORRAL_ROLE": replica.role.value} if replica.role else {}
    return {
        "CORRAL_SERVICE": replica.service,
        "CORRAL_REVISION": str(replica.revision),
        "CORRAL_REPLICA": str(replica.number),
        "CORRAL_HOST": launch.master_address,
        "CORRAL_PORT": str(launch.listening_port),
        "CORRAL_REPLICA_KEY": replica.key,
        **_kv_ports(replica.kv_ports),
        **role,
        **transfer,
    }


def _kv_ports(ports: tuple[int, ...]) -> dict[str, str]:
    """Return the variables of the ports for the events of an engine's KV cache."""
    names = ("CORRAL_KV_EVENTS_PORT", "CORRAL_KV_REPLAY_PORT")
    return {name: str(port) for name, port in zip(names, ports, strict=False)}


def _checkpoint(launch: Launch) -> dict[str, str]:
    rule = launch.checkpoint
    if rule is None:
        return {}
    resume = [
        {
            "job": save.job,
            "step": save.step,
            "attempt": save.attempt,
            "path": save.path,
            "manifest_sha256": save.manifest_sha256,
        }
        for save in launch.resume
    ]
    bandwidth = rule.bandwidth_bytes
    interval = "auto" if rule.interval_seconds is None else f"{rule.interval_seconds:g}"
    return {
        "CORRAL_CHECKPOINT_PATH": rule.path,
        "CORRAL_CHECKPOINT_INTERVAL": interval,
        "CORRAL_CHECKPOINT_KEEP": str(rule.keep),
        **_keep_rule(rule.keep_rule),
        **({"CORRAL_CHECKPOINT_BANDWIDTH": str(bandwidth)} if bandwidth else {}),
        "CORRAL_NODE_MTBF_SECONDS": f"{launch.node_mtbf_seconds:g}",
        "CORRAL_RESUME": json.dumps(resume),
        "CORRAL_PASSED_OVER_ATTEMPT": str(launch.passed_over_attempt),
    }


def _keep_rule(rule: KeepRule) -> dict[str, str]:
    """Return the variable with the rule of saves that stay on disk; none if the number
    of saves is all of it."""
    if rule.every_seconds is None and rule.best is None:
        return {}
    document: dict[str, Any] = {"last": rule.last}
    if rule.every_seconds is not None:
        document["every"] = rule.every_seconds
    if rule.best is not None:
        document["best"] = asdict(rule.best)
    return {"CORRAL_CHECKPOINT_KEEP_RULE": json.dumps(document)}


def _slurm_variables(launch: Launch, settings: NodeSettings) -> dict[str, str]:
    """Return the Slurm variables that libraries look for. Hosts are given as addresses,
    which other nodes can reach."""
    job, attempt = launch.key
    nodes = len(launch.nodes)
    hosts = compress(launch.nodes)
    return {
        "SLURM_JOB_ID": raw_of(job),
        "SLURM_JOBID": raw_of(job),
        "SLURM_JOB_NAME": launch.job_name,
        "SLURM_JOB_USER": launch.owner,
        "SLURM_CLUSTER_NAME": "corral",
        "SLURM_RESTART_COUNT": str(attempt - 1),
        "SLURM_NODEID": str(launch.node_rank),
        "SLURMD_NODENAME": settings.node,
        **_slurm_tasks(launch),
        "SLURM_NNODES": str(nodes),
        "SLURM_JOB_NUM_NODES": str(nodes),
        "SLURM_JOB_NODELIST": hosts,
        "SLURM_NODELIST": hosts,
        "SLURM_GPUS_ON_NODE": str(len(launch.seat.gpus)),
        "SLURM_CPUS_ON_NODE": str(max(1, -(-launch.seat.cpu_millis // MILLIS_PER_CPU))),
        **_slurm_array(launch),
    }


def _slurm_tasks(launch: Launch) -> dict[str, str]:
    """Return Slurm's counts of ranks; none if a rank is a node, whose program starts
    its own processes."""
    if launch.per == Per.NODE:
        return {}
    nodes, tasks = len(launch.nodes), launch.world_size
    tasks_per_node = str(tasks // nodes)
    return {
        "SLURM_NTASKS": str(tasks),
        "SLURM_NPROCS": str(tasks),
        "SLURM_NTASKS_PER_NODE": tasks_per_node,
        "SLURM_TASKS_PER_NODE": f"{tasks_per_node}(x{nodes})"
        if nodes > 1
        else tasks_per_node,
        # JAX finds its processes by the names of a step
        "SLURM_STEP_NUM_NODES": str(nodes),
        "SLURM_STEP_NODELIST": compress(launch.nodes),
    }


def _slurm_array(launch: Launch) -> dict[str, str]:
    if launch.array_index is None:
        return {}
    array = launch.key[0].removesuffix(f"_{launch.array_index}")
    return {
        "SLURM_ARRAY_JOB_ID": number_of(array),
        "SLURM_ARRAY_TASK_ID": str(launch.array_index),
    }
