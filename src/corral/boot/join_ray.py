"""Joining of a cluster on Ray: the machine's Ray node starts the agent."""

import asyncio
import os
from pathlib import Path
from typing import Final

from corral.boot.settings import ClusterSettings, write_atomically
from corral.boot.start_head import StartFailed, last_lines
from corral.domain.errors import Conflict, SpecInvalid
from corral.engines.local.processes import LocalProcess, spawn
from corral.engines.ray import member
from corral.engines.ray.member import RayMember
from corral.engines.ray.start_options import NODE_LABEL, PRETEND_LABEL
from corral.wire.joining import JoinNeeds, RayInvitation

_GPU_TYPE: Final = "h100"


def check(needs: JoinNeeds) -> None:
    """Check that the machine can become a node of the Ray cluster.

    Raises: Conflict if Ray would refuse this machine: Ray is not installed, or the
    version of Ray or Python differs from the cluster's.
    """
    ray, python = member.versions()
    install = f"pip install 'corral[ray]' 'ray=={needs.ray}'"
    if not ray:
        raise Conflict(
            f"the cluster runs on Ray {needs.ray}, but Ray is not installed on this "
            "machine",
            hint=f"run: {install}",
        )
    if ray != needs.ray:
        raise Conflict(
            f"the cluster runs on Ray {needs.ray}, but this machine has Ray {ray}",
            hint=f"run: {install}",
        )
    if python != needs.python:
        raise Conflict(
            "Ray requires the same Python version on all nodes: the cluster uses "
            f"Python {needs.python}, but this machine has {python}",
            hint=f"install Corral with Python {needs.python}, then run that corral "
            "join",
        )


def write(
    folder: Path,
    node: str,
    invitation: RayInvitation,
    machine: ClusterSettings,
    address: str,
) -> None:
    """Write the settings for the process that keeps the Ray node running into `folder`.

    Raises: SpecInvalid.
    """
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    if invitation.token:
        write_atomically(folder / "token", invitation.token)
    labels = {NODE_LABEL: node, **dict(label.split("=", 1) for label in machine.labels)}
    if machine.pretend:
        labels[PRETEND_LABEL] = machine.gpu_type or _GPU_TYPE
    count = machine.gpus or 0 if machine.pretend else machine.gpus
    ray_member = RayMember(
        address=invitation.address, labels=labels, host=address, num_gpus=count
    )
    ray_member.save(folder)


def check_machine(machine: ClusterSettings) -> None:
    """Check the settings of this machine for a node of Ray.

    Raises: SpecInvalid if shared directories are given, which only the head of Ray
    sets.
    """
    if machine.shared:
        raise SpecInvalid(
            "--shared is not valid here: on Ray, shared directories are set on the "
            "head",
            hint="run on the head: corral down --leave; corral up --shared "
            f"{machine.shared[0]}",
        )


def start(folder: Path) -> None:
    """Start the process that keeps the Ray node running, in the background, unless it
    runs already."""
    if member.keeper_of(folder) is None:
        if LocalProcess.recorded(folder / "ray.pid") is None:
            (folder / "ray.pid").unlink(missing_ok=True)
        spawn(member.words_of(folder), dict(os.environ), folder / "keeper.log")


def check_starts(folder: Path) -> None:
    """Check that Ray still runs or has not started yet; clean up otherwise.

    Raises: StartFailed if Ray has started and ended already.
    """
    pid_file = folder / "ray.pid"
    if pid_file.exists() and LocalProcess.recorded(pid_file) is None:
        end(folder)
        log = folder / "ray.log"
        raise StartFailed(
            f"Ray has ended on this machine; the last lines of {log}:\n{last_lines(log, 0)}",
            hint="check that this machine can reach the Ray cluster, then run: corral "
            "join",
        )


def end(folder: Path) -> None:
    """End the Ray node and the process that keeps it running. The agent continues."""
    asyncio.run(member.end(folder))
