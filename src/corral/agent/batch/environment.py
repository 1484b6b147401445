"""The environment of a batch script and of its tasks: it has Slurm's variables, and
none of the other variables that the ranks of a gang get."""

import os
import shlex
from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import Final

from corral.agent.batch.layout import TaskLayout
from corral.agent.shim.host_file import ONLY_WITHOUT_SRUN
from corral.wire.field_readers import SET_BY_CORRAL
from corral.wire.framework_clusters import TF_CONFIG
from corral.wire.slurm.batch_plan import BatchPlan
from corral.wire.slurm.hostlist import compress, expand
from corral.wire.slurm.shims import COMMANDS

BIN: Final = "CORRAL_SLURM_BIN"  # the folder of the commands, on this node
STEPS: Final = "CORRAL_STEPS"  # the socket that srun asks
_TASKS: Final = ("SLURM_NTASKS", "SLURM_NPROCS")
_OF_NODE: Final = (
    "CUDA_VISIBLE_DEVICES",
    "CUDA_DEVICE_ORDER",
    "SLURMD_NODENAME",
    "SLURM_CPUS_ON_NODE",
    "SLURM_GPUS_ON_NODE",
    "HOSTNAME",
    "TMPDIR",
)
_MEGABYTE: Final = 1024**2


def of_script(
    plan: BatchPlan, own: Mapping[str, str], bin_folder: str, began: float
) -> dict[str, str]:
    """Return the environment of the script on the first node.

    Args:
        own: the environment of the node's rank.
        began: when the script started, by the node's wall clock.
    """
    tasks = () if plan.tasks_given else _TASKS
    hidden = {*SET_BY_CORRAL, *ONLY_WITHOUT_SRUN, *tasks, *_of_a_single_rank(own)}
    nodes = int(own["SLURM_NNODES"])
    script_variables = {
        "SLURM_CPUS_PER_TASK": str(plan.cpus_per_task) if plan.cpus_given else "",
        "SLURM_MEM_PER_NODE": _megabytes(plan.memory_bytes_per_node),
        "SLURM_GPUS_PER_NODE": str(plan.gpus_per_node) if plan.gpus_per_node else "",
        "SLURM_GPUS_PER_TASK": str(plan.task_gpus) if plan.task_gpus else "",
        "SLURM_NTASKS": str(plan.tasks) if plan.tasks_given else "",
        "SLURM_NPROCS": str(plan.tasks) if plan.tasks_given else "",
        "SLURM_NTASKS_PER_NODE": str(plan.tasks_per_node) if plan.tasks_given else "",
        "SLURM_JOB_END_TIME": str(int(began) + plan.time_seconds)
        if plan.time_seconds
        else "",
        **_array_variables(plan),
        **_components(plan, own),
    }
    path = own.get("PATH", "/usr/local/bin:/usr/bin:/bin")
    return {
        **{name: value for name, value in own.items() if name not in hidden},
        **{name: value for name, value in script_variables.items() if value},
        "SLURM_JOB_NAME": plan.name,
        "SLURM_JOB_START_TIME": str(int(began)),
        "SLURM_JOB_PARTITION": plan.partition,
        "SLURM_SUBMIT_DIR": plan.submit_dir,
        "SLURM_SUBMIT_HOST": plan.submit_host,
        "SLURM_TASKS_PER_NODE": tasks_text([plan.tasks_per_node] * nodes),
        "SLURM_JOB_CPUS_PER_NODE": tasks_text([int(own["SLURM_CPUS_ON_NODE"])] * nodes),
        "SLURM_PROCID": "0",
        "SLURM_LOCALID": "0",
        "SLURM_NODEID": "0",
        "SLURM_GTIDS": "0",
        "SLURM_JOB_UID": str(os.getuid()),
        "SLURM_JOB_GID": str(os.getgid()),
        "SLURM_NODE_ALIASES": "(null)",
        "SLURM_PRIO_PROCESS": "0",
        "SLURM_TOPOLOGY_ADDR": own["SLURMD_NODENAME"],
        "SLURM_TOPOLOGY_ADDR_PATTERN": "node",
        "ENVIRONMENT": "BATCH",
        BIN: bin_folder,
        "PATH": f"{bin_folder}:{path}",
        **_functions(bin_folder),
    }


def _of_a_single_rank(own: Mapping[str, str]) -> tuple[str, ...]:
    """Return the names of Corral's variables that hold for a program that runs once on
    each node. A script may start several programs."""
    tracking_id = own.get("CORRAL_TRACKING_ID")
    if tracking_id is None or own.get("WANDB_RUN_ID") != tracking_id:
        return (TF_CONFIG,)
    return (TF_CONFIG, "WANDB_RUN_ID", "WANDB_RESUME")


def _functions(bin_folder: str) -> dict[str, str]:
    """Return Slurm's commands as functions that bash takes from its environment.

    A login shell (`#!/bin/bash -l`, `source /etc/profile`) resets PATH, which drops the
    folder of the commands. The functions remain available. Source: bash(1),
    "Functions", export -f.
    """
    quoted_folder = shlex.quote(bin_folder)
    return {
        f"BASH_FUNC_{name}%%": f'() {{ PATH={quoted_folder}:"$PATH" {quoted_folder}/{name} "$@"; }}'
        for name in COMMANDS
    }


def _megabytes(count: int) -> str:
    return str(count // _MEGABYTE) if count else ""


def _array_variables(plan: BatchPlan) -> dict[str, str]:
    if plan.array is None:
        return {}
    names = ("COUNT", "MIN", "MAX", "STEP")
    return {
        f"SLURM_ARRAY_TASK_{name}": str(value)
        for name, value in zip(names, plan.array, strict=True)
    }


def _components(plan: BatchPlan, own: Mapping[str, str]) -> dict[str, str]:
    """Return variables with the node list of each component of a heterogeneous job;
    none if the job has one component."""
    if plan.components == 1:
        return {}
    hosts = expand(own["SLURM_JOB_NODELIST"])
    nodes_per_component = len(hosts) // plan.components
    lists = {
        f"SLURM_JOB_NODELIST_HET_GROUP_{component_index}": compress(
            hosts[
                component_index * nodes_per_component : (component_index + 1)
                * nodes_per_component
            ]
        )
        for component_index in range(plan.components)
    }
    return {"SLURM_HET_SIZE": str(plan.components), **lists}


def tasks_text(counts: Sequence[int]) -> str:
    """Format task counts per node as Slurm does. For example: 2(x3),1 for [2, 2, 2, 1]."""
    runs = ((count, len(list(equal_counts))) for count, equal_counts in groupby(counts))
    return ",".join(
        f"{count}(x{times})" if times > 1 else str(count) for count, times in runs
    )


def of_step(
    number: int, layout: TaskLayout, hosts: Sequence[str], cpus_per_task: int | None
) -> dict[str, str]:
    """Return the environment that all tasks of a step share.

    Args:
        hosts: the hosts of the step's nodes, in the order of the step.
    """
    nodes = compress(hosts)
    tasks_per_node = tasks_text(layout.tasks)
    cpus = {"SLURM_CPUS_PER_TASK": str(cpus_per_task)} if cpus_per_task else {}
    return cpus | {
        "SLURM_DISTRIBUTION": "block",
        "SLURM_STEP_ID": str(number),
        "SLURM_STEPID": str(number),
        "SLURM_NTASKS": str(layout.total),
        "SLURM_NPROCS": str(layout.total),
        "SLURM_NNODES": str(len(layout.nodes)),
        "SLURM_NODELIST": nodes,
        "SLURM_TASKS_PER_NODE": tasks_per_node,
        "SLURM_STEP_NUM_TASKS": str(layout.total),
        "SLURM_STEP_NUM_NODES": str(len(layout.nodes)),
        "SLURM_STEP_NODELIST": nodes,
        "SLURM_STEP_TASKS_PER_NODE": tasks_per_node,
        "SLURM_LAUNCH_NODE_IPADDR": hosts[0],
    }


def of_task(
    step: Mapping[str, str],
    own: Mapping[str, str],
    *,
    place: int,
    first_task: int,
    local: int,
    tasks: int,
    task_gpus: int,
) -> dict[str, str]:
    """Return the whole environment of one task.

    Args:
        step: the environment that srun sends.
        own: the environment of the rank on this node, which names the node's GPUs.
        place: the node's position in the step.
        first_task: the number of this node's first task in the step.
        local: the task's number on this node, from 0.
        tasks: how many tasks of the step this node runs.
        task_gpus: the GPUs for each task.
    """
    ours = {
        name: value
        for name, value in own.items()
        if name in _OF_NODE or (name.startswith("CORRAL_") and name != STEPS)
    }
    task_variables = {**step, **ours}
    if (step_path := step.get(BIN)) and (own_path := own.get(BIN)):
        task_variables["PATH"] = step.get("PATH", "").replace(step_path, own_path)
    task_variables |= {
        "SLURM_NODEID": str(place),
        "SLURM_PROCID": str(first_task + local),
        "SLURM_LOCALID": str(local),
        "SLURM_GTIDS": ",".join(str(first_task + task) for task in range(tasks)),
    }
    gpus = [gpu for gpu in own.get("CUDA_VISIBLE_DEVICES", "").split(",") if gpu]
    if task_gpus and gpus:
        task_variables["CUDA_VISIBLE_DEVICES"] = ",".join(
            gpus[local * task_gpus : (local + 1) * task_gpus]
        )
    return task_variables
