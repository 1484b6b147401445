"""Parser of Slurm's JSON. It reads only the few fields that are needed, and those
strictly. Pure.

Source: the OpenAPI of Slurm 22.05, plugin v0.0.38.
"""

import re
import shlex
from collections.abc import Iterator, Mapping
from typing import Any, Final

from corral.domain.errors import Unsupported
from corral.engines.slurm.jobs import SlurmJob, gpus_in, memory_bytes_of
from corral.engines.slurm.names import PREFIX, names_of
from corral.engines.slurm.nodes import ABSENT, SlurmNode, gpus_of

_MIB: Final = 1024**2
_TEXT: Final = {
    "job-name": "name",
    "comment": "comment",
    "output": "standard_output",
    "chdir": "current_working_directory",
    "partition": "partition",
    "account": "account",
    "qos": "qos",
    "reservation": "reservation",
    "nodelist": "nodelist",
    "exclude": "exclude_nodes",
    "gres": "gres",
    "array": "array",
    "constraint": "constraints",
}  # options of sbatch's, and what slurmrestd calls them
_NUMBERS: Final = {
    "ntasks": "tasks",
    "ntasks-per-node": "tasks_per_node",
    "cpus-per-task": "cpus_per_task",
    "time": "time_limit",
    "nice": "nice",
}
_FIXED: Final[Mapping[str, tuple[str, object]]] = {
    "no-requeue": ("no_requeue", True),
    "exclusive": ("exclusive", "exclusive"),
    "open-mode": ("open_mode", "a"),
}
_RANGE: Final = re.compile(r"(\d+)(?:-(\d+)(?::(\d+))?)?", re.ASCII)


def body_of(script: str, env: Mapping[str, str]) -> dict[str, object]:
    """Return the batch script in the form that slurmrestd takes. Its #SBATCH lines
    become properties of the job, since slurmrestd does not read them.

    Raises: Unsupported for an option that has no such property.
    """
    job: dict[str, object] = {"environment": dict(env)}
    for line in script.splitlines():
        if line.startswith("#SBATCH "):
            (option,) = shlex.split(line.removeprefix("#SBATCH "))[:1]
            job |= _property_of_option(*option.removeprefix("--").partition("=")[::2])
    return {"script": script, "job": job}


def _property_of_option(option: str, value: str) -> dict[str, object]:
    if option in _TEXT:
        return {_TEXT[option]: value}
    if option in _FIXED:
        name, fixed_value = _FIXED[option]
        return {name: fixed_value}
    if option in _NUMBERS and value.isdigit():
        return {_NUMBERS[option]: int(value)}
    if option == "nodes" and value.isdigit():
        return {"nodes": [int(value), int(value)]}
    if option == "mem" and value.removesuffix("M").isdigit():
        return {"memory_per_node": int(value.removesuffix("M"))}
    raise Unsupported(
        f"slurmrestd does not accept --{option}={value}",
        hint="remove it from --set options, or remove --set rest",
    )


def node_of_row(row: Mapping[str, Any]) -> SlurmNode | None:
    """Parse one node; None for a node that is only planned. Raises: ValueError."""
    try:
        flags = frozenset(
            str(flag).upper() for flag in (row["state"], *row["state_flags"])
        )
        if flags & ABSENT:
            return None
        return SlurmNode(
            name=row["name"],
            address=row["address"] or row["name"],
            flags=flags,
            partitions=frozenset(row["partitions"]),
            features=tuple(
                feature
                for feature in (row["active_features"] or "").split(",")
                if feature
            ),
            gpus=gpus_of(row["gres"] or ""),
            cpus=int(row["cpus"]),
            memory_bytes=int(row["real_memory"]) * _MIB,
            used_gpus=len(gpus_of(row["gres_used"] or "")),
            used_cpus=int(row["alloc_cpus"]),
            used_memory_bytes=int(row["alloc_memory"]) * _MIB,
            reason=row["reason"] or "",
        )
    except (KeyError, TypeError, ValueError) as wrong:
        raise ValueError(
            f"a node in the answer of slurmrestd cannot be read: {wrong!r}"
        ) from None


def job_rows(row: Mapping[str, Any]) -> Iterator[SlurmJob]:
    """Yield the job in a row of slurmrestd's reply, if Corral may have created it. For
    a waiting array, yield one job for each task.

    Raises: ValueError.
    """
    try:
        if not row["name"].startswith(PREFIX):
            return
        array, task = row["array_job_id"] or 0, row["array_task_id"]
        tasks = [task] if task is not None else tasks_of(row["array_task_string"] or "")
        nodes = names_of(row["nodes"] or "")
        held_amounts = dict(
            tres_entry.partition("=")[::2]
            for tres_entry in (row["tres_alloc_str"] or "").split(",")
        )
        count, starts = max(len(nodes), 1), row["start_time"] or 0
        for array_task in tasks or [None]:
            yield SlurmJob(
                id=int(array if array_task is not None else row["job_id"]),
                task=array_task,
                name=row["name"],
                state=row["job_state"],
                nodes=nodes,
                reason=row["state_reason"] or "",
                starts_at=float(starts) if starts else None,
                restarts=int(row["restart_cnt"] or 0),
                is_preempted=bool(row["preempt_time"]),
                gpus_each=gpus_in(row["tres_per_node"] or ""),
                cpus_each=int(held_amounts.get("cpu", 0)) // count,
                memory_bytes_each=memory_bytes_of(held_amounts.get("mem", "0"))
                // count,
            )
    except (KeyError, TypeError, AttributeError) as wrong:
        raise ValueError(
            f"a job in the answer of slurmrestd cannot be read: {wrong!r}"
        ) from None


def tasks_of(text: str) -> list[int]:
    """Return the indices in a text such as "0,2-6:2%3". Raises: ValueError for a text
    that is not such a list, or was truncated."""
    task_numbers: list[int] = []
    listed, _, _ = text.partition("%")
    for index_range in filter(None, listed.split(",")):
        match = _RANGE.fullmatch(index_range)
        if match is None:
            raise ValueError(
                f"the array tasks {text!r} cannot be read: start slurmrestd with "
                "SLURM_BITSTR_LEN=0"
            )
        first_task, last_task, step = match.groups()
        task_numbers += range(
            int(first_task), int(last_task or first_task) + 1, int(step or 1)
        )
    return task_numbers
