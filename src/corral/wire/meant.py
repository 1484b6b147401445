"""Words that other systems have for a field of the spec, and what to write here instead. Pure."""

from collections.abc import Mapping
from typing import Final

_DURATION: Final = "write: max_duration: 4h"
_RETRIES: Final = "write: retry: {user: 3}"
_AFTER: Final = "write: after: prepare"
_GPUS: Final = "write: resources: {gpu: 8}"
_CPUS: Final = "write: resources: {cpu: 8}"
_MEMORY: Final = "write: resources: {memory: 64GB}"

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
    "args": "write them behind the command: run: python train.py --lr 3",
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
    "ntasks": "write: nodes: N, and per: gpu for one rank a GPU",
    "ntasks_per_node": "write: per: gpu for one rank a GPU, or start them in run with torchrun",
    "nproc_per_node": "write: per: gpu for one rank a GPU, or start them in run with torchrun",
    "num_gpus": _GPUS,
    "ngpus": _GPUS,
    "n_gpus": _GPUS,
    "gpus_per_node": _GPUS,
    "gres": _GPUS,
    "num_cpus": _CPUS,
    "cores": _CPUS,
    "cpus_per_task": _CPUS,
    "cpus_per_node": _CPUS,
    "mem": _MEMORY,
    "ram": _MEMORY,
    "mem_per_node": _MEMORY,
}


def meant_by(word: str) -> str:
    """What to write instead of another system's word; "" when it is none that is known."""
    plain = word.lower().lstrip("-").replace("-", "_")
    return _MEANT.get(plain) or _MEANT.get(plain.replace("_", ""), "")
