"""Names of fields in the specs of other systems, each with the Corral field to write
instead. No I/O."""

from collections.abc import Mapping
from typing import Final

_DURATION: Final = "write: max_duration: 4h"
_RETRIES: Final = "write: retry: {user: 3}"
_AFTER: Final = "write: after: JOB"
_GPUS: Final = "write: resources: {gpu: 8}"
_CPUS: Final = "write: resources: {cpu: 8}"
_MEMORY: Final = "write: resources: {memory: 64GB}"
_LABELS: Final = "write: constraints: {LABEL: VALUE}; see labels with: corral node ls"
_NODES: Final = "write: constraints: {node: [n1, n2]}, or {node: {not: n3}}"
_SPOT: Final = "write: preemptible: true"
_NEAR: Final = "write: topology: {mode: require, within: rack}"
_APART: Final = "write: apart_from: JOB"
_LATE: Final = "write: start_by: 2h, or a time: 2026-11-22T08:00Z"
_EARLY: Final = "write: begin: 30m, or a time: 2026-11-22T08:00Z"

_MEANT: Final[Mapping[str, str]] = {
    "time": _DURATION,
    "timeout": _DURATION,
    "time_limit": _DURATION,
    "timelimit": _DURATION,
    "walltime": _DURATION,
    "duration": _DURATION,
    "max_time": _DURATION,
    "ttl": _DURATION,
    "partition": "write: queue: NAME",
    "account": "write: queue: NAME",
    "project": "write: queue: NAME",
    "pool": "write: queue: NAME",
    "command": "write: run: python train.py",
    "cmd": "write: run: python train.py",
    "script": "write: run: python train.py",
    "entrypoint": "write: run: python train.py",
    "args": "write arguments after the command: run: python train.py --lr 3",
    "job_name": "write: name: train",
    "cwd": "write: workdir: .",
    "chdir": "write: workdir: .",
    "working_dir": "write: workdir: .",
    "working_directory": "write: workdir: .",
    "environment": "write: env: {A: b}",
    "environment_variables": "write: env: {A: b}",
    "retries": _RETRIES,
    "max_retries": _RETRIES,
    "max_restarts": _RETRIES,
    "backoff_limit": _RETRIES,
    "requeue": _RETRIES,
    "depends_on": _AFTER,
    "dependency": _AFTER,
    "dependencies": _AFTER,
    "needs": _AFTER,
    "container": "write: image: ubuntu:24.04",
    "docker": "write: image: ubuntu:24.04",
    "container_image": "write: image: ubuntu:24.04",
    "ntasks": "write: nodes: N, and per: gpu for one rank per GPU",
    "ntasks_per_node": "write: per: gpu, or start torchrun in run",
    "nproc_per_node": "write: per: gpu, or start torchrun in run",
    "num_gpus": _GPUS,
    "ngpus": _GPUS,
    "n_gpus": _GPUS,
    "gpus_per_node": _GPUS,
    "gres": _GPUS,
    "num_cpus": _CPUS,
    "cores": _CPUS,
    "cpus_per_task": _CPUS,
    "cpus_per_node": _CPUS,
    "constraint": _LABELS,
    "features": _LABELS,
    "labels": _LABELS,
    "node_selector": _LABELS,
    "affinity": _LABELS,
    "placement": _LABELS,
    "nodelist": _NODES,
    "exclude": _NODES,
    "use_spot": _SPOT,
    "spot": _SPOT,
    "spot_policy": _SPOT,
    "preemptable": _SPOT,
    "switches": _NEAR,
    "segment": _NEAR,
    "network_tier": _NEAR,
    "required_topology": _NEAR,
    "pod_anti_affinity": _APART,
    "deadline": _LATE,
    "start_before": _LATE,
    "begin_at": _EARLY,
    "start_after": _EARLY,
    "schedule": _EARLY,
    "start_at": _EARLY,
    "signal": "write: warn: {signal: USR1, before: 2m}",
    "oversubscribe": "remove this field; jobs share nodes unless exclusive is true",
    "mem": _MEMORY,
    "ram": _MEMORY,
    "mem_per_node": _MEMORY,
}


def meant_by(word: str) -> str:
    """Return a hint what to write instead of another system's field name; "" if the
    name is unknown."""
    plain = word.lower().lstrip("-").replace("-", "_")
    return _MEANT.get(plain) or _MEANT.get(plain.replace("_", ""), "")
