"""From what the head wants to what a shim is told."""

import hashlib
import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from corral.agent.host import interpreter, passed_on
from corral.agent.image.root import ImageRoot
from corral.agent.ray_program import outfit
from corral.domain.facts import AttemptKey
from corral.domain.wanted import Launch
from corral.wire.launching import shim_spec_of
from corral.wire.node import NodeSettings
from corral.wire.shim_spec import ShimSpec

OURS: Final = ("CORRAL_", "SLURM_", "CUDA_", "MASTER_")  # variables that no image sets
_PID_MAX: Final = Path("/proc/sys/kernel/pid_max")
_NVIDIA: Final = Path("/dev/nvidiactl")


def folder_of(node_dir: Path, key: AttemptKey) -> Path:
    return node_dir / "attempts" / f"{key[0]}.{key[1]}"


def group_prefix(node_dir: Path, node: str) -> str:
    """Begins the names of the node's groups, and of no other node's on this machine."""
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
) -> ShimSpec:
    """`env` is what only the node knows, and the secrets; it wins over what the launch says, and
    that over what the image says."""
    job, attempt = launch.key
    spec = shim_spec_of(launch, settings)
    ray = folder_of(node_dir, launch.key) / outfit.FOLDER
    return replace(
        spec,
        folder=str(folder_of(node_dir, launch.key)),
        work=str(work),
        run=outfit.command() if launch.ray else launch.run,
        env={**_environment(spec, launch, image), **env},
        containment=containment,
        group=f"{group_prefix(node_dir, settings.node)}.{job}.{attempt}",
        pids=_pids(spec.pids),
        devices=_devices(launch, settings),
        image=_image(image, folder_of(node_dir, launch.key)),
        beside=str(ray) if launch.ray else None,
    )


def _environment(spec: ShimSpec, launch: Launch, image: ImageRoot | None) -> dict[str, str]:
    """An image brings its own PATH and the like; the job's own words win."""
    given = {**passed_on(os.environ), **spec.env, **interpreter()}
    own = dict(launch.env)
    from_image = image.env if image is not None else {}
    fresh = {name: one for name, one in from_image.items() if name not in own}
    return given | {name: one for name, one in fresh.items() if not name.startswith(OURS)}


def _image(image: ImageRoot | None, folder: Path) -> dict[str, Any] | None:
    """What its ranks change in it lies in the attempt's own folder, and goes with it."""
    if image is None:
        return None
    upper = str(folder / "image") if image.root else ""
    return replace(image, upper=upper).as_json()


def _pids(asked: int) -> int:
    """Never more than a quarter of what the machine has."""
    try:
        return min(asked, int(_PID_MAX.read_text()) // 4)
    except (OSError, ValueError):
        return asked


def _devices(launch: Launch, settings: NodeSettings) -> list[int] | None:
    """Minors of the only GPUs that may be opened; None where there is none to keep from."""
    if settings.pretend_gpus is not None or not _NVIDIA.exists():
        return None
    chosen = settings.real_gpus
    return [index if chosen is None else chosen[index] for index in launch.seat.gpus]
