"""Translation of the head's desired state into the spec of a shim."""

import hashlib
import os
from collections.abc import Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, Final

from corral.agent.containment import CGROUP
from corral.agent.devices import gpu_devices
from corral.agent.discovery.client import cpu_millis, memory_bytes
from corral.agent.host_environment import (
    interpreter,
    passed_on,
    with_active_environment,
)
from corral.agent.image.root import ImageRoot
from corral.agent.job_account import JobAccount
from corral.agent.keeping.memory_folders import VARIABLE
from corral.agent.mig import MigPart, read_parts
from corral.agent.ray_program import launch_files
from corral.agent.shim.user_isolation import Apart, own_code
from corral.domain.desired_state import Launch
from corral.domain.node_policy import NodePolicy
from corral.domain.observed_state import AttemptKey
from corral.domain.units import MILLIS_PER_GPU
from corral.wire.node import NodeSettings
from corral.wire.shim_launch import shim_spec_of
from corral.wire.shim_spec import ShimSpec

NO_POLICY: Final = NodePolicy()
OURS: Final = ("CORRAL_", "SLURM_", "CUDA_", "MASTER_")  # variables that no image sets
_PID_MAX: Final = Path("/proc/sys/kernel/pid_max")


def folder_of(node_dir: Path, key: AttemptKey) -> Path:
    return node_dir / "attempts" / f"{key[0]}.{key[1]}"


def group_prefix(node_dir: Path, node: str) -> str:
    """Return the prefix for the names of this node's process groups. No other node on
    this machine has the same prefix."""
    return f"{node}-{hashlib.sha256(os.fsencode(node_dir)).hexdigest()[:8]}"


def shim_spec_on(
    launch: Launch,
    *,
    node_dir: Path,
    work: Path,
    env: Mapping[str, str],
    settings: NodeSettings,
    containment: str,
    image: ImageRoot | None = None,
    account: JobAccount | None = None,
    policy: NodePolicy = NO_POLICY,
) -> ShimSpec:
    """Return the spec with which a shim starts the launch. `env` holds secrets and
    variables that only the node knows; it takes precedence over the launch's variables,
    which take precedence over the image's."""
    job, attempt = launch.key
    shares = account is not None and containment == CGROUP and policy.memory == "share"
    spec = shim_spec_of(launch, settings)
    ray = folder_of(node_dir, launch.key) / launch_files.FOLDER
    return replace(
        spec,
        folder=str(folder_of(node_dir, launch.key)),
        work=str(work),
        run=launch_files.command() if launch.ray else launch.run,
        env={**_environment(spec, launch, image), **env},
        containment=containment,
        group=f"{group_prefix(node_dir, settings.node)}.{job}.{attempt}",
        pids=_pid_limit(spec.pids),
        memory_bytes=spec.memory_bytes
        or (_memory_share(launch, settings) if shares else 0),
        account=None if account is None else asdict(account),
        apart=_isolation_spec(
            folder_of(node_dir, launch.key),
            account,
            settings,
            policy,
            image,
            env.get(VARIABLE, ""),
        ),
        devices=gpu_devices(launch, settings, parts=_mig_parts(launch, node_dir)),
        image=_image_spec(image, folder_of(node_dir, launch.key)),
        beside=str(ray) if launch.ray else None,
    )


def _mig_parts(launch: Launch, node_dir: Path) -> Mapping[str, MigPart]:
    return read_parts(node_dir) if launch.seat.slices else {}


def _environment(
    spec: ShimSpec, launch: Launch, image: ImageRoot | None
) -> dict[str, str]:
    """Return the environment of the ranks. An image brings its own PATH and similar
    variables; the job's own variables take precedence."""
    own_variables = dict(launch.env)
    given_variables = {**passed_on(os.environ), **spec.env, **interpreter()}
    given_variables = with_active_environment(
        given_variables, own_variables, image is not None
    )
    from_image = image.env if image is not None else {}
    image_variables = {
        name: value for name, value in from_image.items() if name not in own_variables
    }
    return given_variables | {
        name: value
        for name, value in image_variables.items()
        if not name.startswith(OURS)
    }


def _image_spec(image: ImageRoot | None, folder: Path) -> dict[str, Any] | None:
    """Return the image part of the spec. Changes in the image are kept in the attempt's
    own folder and removed with it."""
    if image is None:
        return None
    upper = str(folder / "image") if image.root else ""
    return replace(image, upper=upper).as_json()


def _isolation_spec(
    folder: Path,
    account: JobAccount | None,
    settings: NodeSettings,
    policy: NodePolicy,
    image: ImageRoot | None,
    memory: str,
) -> dict[str, Any] | None:
    """Return how ranks with their own account are isolated from other users; None if
    they are not isolated. An image has its own /tmp."""
    if account is None:
        return None
    visible_paths = (str(folder), account.home, *settings.shared, *own_code())
    private = policy.tmp == "private"
    tmp = private and (image is None or not image.root)
    return asdict(
        Apart(
            shm=private,
            tmp=tmp,
            folder=str(folder),
            seen=visible_paths,
            memory=memory,
        )
    )


def _memory_share(launch: Launch, settings: NodeSettings) -> int:
    """Return the memory limit of a job that requests no memory, on a node with several
    users: the job's share of the node's CPUs or GPUs, whichever is larger, times the
    node's memory; all of it if the job has neither."""
    gpus = gpu_count(settings) * MILLIS_PER_GPU
    cpus = settings.cpu_millis or cpu_millis()
    node_shares = (
        launch.seat.gpu_millis / gpus if gpus else 0.0,
        launch.seat.cpu_millis / cpus,
    )
    return int(
        (settings.memory_bytes or memory_bytes()) * min(1.0, max(node_shares) or 1.0)
    )


def gpu_count(settings: NodeSettings) -> int:
    """Return the number of GPUs of the node, as far as it is known without a call to a
    driver."""
    if settings.pretend_gpus is not None:
        return settings.pretend_gpus
    if settings.real_gpus is not None:
        return len(settings.real_gpus)
    return settings.amd_gpus or len(list(Path("/dev").glob("nvidia[0-9]*")))


def _pid_limit(asked: int) -> int:
    """Return the limit of processes: `asked`, but at most a quarter of the machine's
    maximum."""
    try:
        return min(asked, int(_PID_MAX.read_text()) // 4)
    except (OSError, ValueError):
        return asked
