"""How the nodes run a batch script (sbatch). The plan is stored in the job's command.
No I/O."""

import json
import shlex
from dataclasses import dataclass, fields
from typing import Any, Final

SCRIPT: Final = "slurm_script"
MODULE: Final = "corral.agent.batch"
_END: Final = "END_OF_SCRIPT"
_RUN: Final = f'exec "$CORRAL_PYTHON" -P -m {MODULE} '


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchPlan:
    """How a batch script runs on the first node, and the layout of its steps.

    `output`, `error` and `input` are patterns of files, relative to `chdir`. `error`
    None: errors go to the output; `input` None: there is nothing to read. `tasks`:
    number of tasks on all nodes; `tasks_given`: whether the user gave a number.
    `task_gpus` 0: tasks share the GPUs of their node.
    """

    name: str
    submit_dir: str
    submit_host: str
    chdir: str
    output: str
    error: str | None = None
    input: str | None = None
    append: bool = False
    arguments: tuple[str, ...] = ()
    tasks: int = 1
    tasks_given: bool = False
    tasks_per_node: int = 1
    cpus_per_task: int = 1
    cpus_given: bool = False
    gpus_per_node: int = 0
    task_gpus: int = 0
    memory_bytes_per_node: int = 0
    time_seconds: int | None = None
    array: tuple[int, int, int, int] | None = None  # count, least, most, step
    partition: str = "default"
    components: int = 1  # of a heterogeneous job whose components ask for the same
    # its whole path where it was submitted; "" for one that was no file
    script: str = ""

    def encode(self) -> str:
        """Return the plan as one line of JSON, without default values."""
        given_fields = {
            field.name: getattr(self, field.name)
            for field in fields(self)
            if getattr(self, field.name) != field.default
        }
        return json.dumps(given_fields, separators=(",", ":"), sort_keys=True)


def decode_plan(text: str) -> BatchPlan:
    """Decode a plan from its JSON.

    Raises: ValueError, TypeError.
    """
    plan_fields: dict[str, Any] = json.loads(text)
    for key in ("arguments", "array"):
        if plan_fields.get(key) is not None:
            plan_fields[key] = tuple(plan_fields[key])
    return BatchPlan(**plan_fields)


def command_of(script: str, plan: BatchPlan) -> str:
    """Return the job's command on every node: it writes the unchanged script to a file,
    and runs it by the plan."""
    end_marker = _END
    while end_marker in script:
        end_marker += "_"
    text = script if script.endswith("\n") else f"{script}\n"
    return (
        f"cat > {SCRIPT} "
        f"<<'{end_marker}'\n{text}{end_marker}\n{_RUN}{shlex.quote(plan.encode())}\n"
    )


def plan_in(command: str) -> BatchPlan | None:
    """Return the plan that is stored in a batch script's command; None for any other
    command."""
    if not is_batch(command):
        return None
    run_arguments = shlex.split(command[command.rindex(_RUN) + len(_RUN) :])
    return decode_plan(run_arguments[0])


def is_batch(command: str) -> bool:
    """Return whether the command is that of a batch script, as `command_of` makes it."""
    return command.startswith(f"cat > {SCRIPT} <<'{_END}") and f"\n{_RUN}" in command
