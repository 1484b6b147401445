"""srun with several components, `srun A : B`: one step for each component, each on
separate nodes."""

import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from types import FrameType
from typing import Final

from corral.agent.batch.environment import STEPS
from corral.wire.slurm import value_forms
from corral.wire.slurm.sbatch_options import SRUN
from corral.wire.slurm.slurm_errors import SlurmRefusal

POLL_SECONDS: Final = 0.2


def divided(words: Sequence[str]) -> list[list[str]]:
    """Return the words of each component. The word ":" separates components."""
    components: list[list[str]] = [[]]
    for argument in words:
        if argument == ":":
            components.append([])
        else:
            components[-1].append(argument)
    return components


def placed(components: Sequence[Sequence[str]]) -> list[list[str]]:
    """Return the words of each component with options that give it nodes of its own.
    Each component gets as many nodes as it requests; they follow the nodes of the
    component before.

    Raises: SlurmRefusal if a component has no command.
    """
    placed_components, node_offset = [], 0
    for component_words in components:
        parsed_options = SRUN.read(component_words)
        if not parsed_options.rest:
            raise SlurmRefusal(
                "a component of srun A : B has no command to execute",
                before="fatal: ",
            )
        nodes = value_forms.nodes(parsed_options.get("nodes") or "1")[1]
        tasks_per_node = (
            parsed_options.get("ntasks-per-node")
            or os.environ.get("SLURM_NTASKS_PER_NODE")
            or "1"
        )
        tasks = nodes * value_forms.count(
            tasks_per_node, "--ntasks-per-node"
        )  # and not those of the whole job
        placed_components.append(
            [
                f"--nodes={nodes}",
                f"--relative={node_offset}",
                f"--ntasks={tasks}",
                *component_words,
            ]
        )
        node_offset += nodes
    return placed_components


def run(components: Sequence[Sequence[str]]) -> int:
    """Run all components at once, and return the highest of their exit codes. With
    --kill-on-bad-exit the other components are stopped when one fails, and its exit
    code is returned.

    Raises: SlurmRefusal outside of a job.
    """
    if STEPS not in os.environ:
        raise SlurmRefusal(
            "several components (srun A : B) are supported only inside a job",
            hint="put this srun into a batch script that requests all their nodes: "
            "sbatch -N 2 SCRIPT",
        )
    srun_command = [sys.executable, "-P", "-m", "corral.cli.slurm", "srun"]
    steps = [
        subprocess.Popen([*srun_command, *arguments])
        for arguments in placed(components)
    ]

    def pass_on(number: int, frame: FrameType | None) -> None:
        for step in steps:
            with suppress(ProcessLookupError):
                step.send_signal(number)

    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, pass_on)
    ends_all = [
        SRUN.read(component_words).get("kill-on-bad-exit") not in (None, "0")
        for component_words in components
    ]
    return _wait_for_steps(steps, ends_all)


def _wait_for_steps(
    steps: Sequence["subprocess.Popen[bytes]"], ends_all: Sequence[bool]
) -> int:
    open_steps = dict(zip(steps, ends_all, strict=True))
    while open_steps:
        for step, is_ending_all in list(open_steps.items()):
            with suppress(subprocess.TimeoutExpired):
                code = step.wait(POLL_SECONDS / len(open_steps))
                open_steps.pop(step)
                if code and is_ending_all:
                    for remaining_step in open_steps:
                        remaining_step.terminate()
                    for remaining_step in open_steps:
                        remaining_step.wait()
                    return _shell_code(code)
    return max(_shell_code(step.returncode) for step in steps)


def _shell_code(code: int) -> int:
    return code if code >= 0 else 128 - code
