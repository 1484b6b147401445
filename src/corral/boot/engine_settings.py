"""The settings of an engine itself, checked before a cluster stores them. This module
imports no engine."""

import os
from collections.abc import Mapping
from pathlib import Path
from shlex import quote
from shutil import which
from typing import TYPE_CHECKING, Any, Final

from corral.boot.declared_settings import LOCAL
from corral.domain.errors import Conflict, SpecInvalid
from corral.engines.kubernetes.settings import KubernetesSettings
from corral.engines.ray.settings import RaySettings
from corral.engines.slurm.settings import SlurmSettings
from corral.engines.typed_settings import example_of, read_settings, types_of
from corral.wire.slurm.shims import is_shim

if TYPE_CHECKING:
    from corral.engines.typed_settings import EngineSettings

KINDS: Final[Mapping[str, "type[EngineSettings]"]] = {
    "ray": RaySettings,
    "slurm": SlurmSettings,
    "kubernetes": KubernetesSettings,
}
_SOCKET: Final = "unix:"
_COMMANDS: Final = ("scontrol", "squeue", "sbatch", "scancel", "sacct")


def check_engine_settings(engine: str, given: Mapping[str, Any]) -> None:
    """Check the settings that are given for the engine.

    Raises: SpecInvalid if the engine's head would refuse them.
    """
    if engine == LOCAL and given:
        raise SpecInvalid(
            f"--set {', '.join(given)}: the local engine has no settings",
            hint=(
                "name the engine of these settings: "
                f"{_up_command(_engine_with_settings(given), given)}"
            ),
        )
    if engine in KINDS:
        read_settings(KINDS[engine], given)


def with_whole_paths(engine: str, given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings with absolute paths, so that every process of the head finds
    these files."""
    files = KINDS[engine].FILES if engine in KINDS else {}
    return {
        name: str(Path(value).expanduser().absolute())
        if name in files and value
        else value
        for name, value in given.items()
    }


def check_files(engine: str, given: Mapping[str, Any]) -> None:
    """Check, before the head starts, that it can use the files of the engine's
    settings.

    Raises: SpecInvalid if the head could not read a file or not write to a folder;
    Conflict if the commands found as Slurm's are those of Corral.
    """
    if engine not in KINDS:
        return
    if engine == SlurmSettings.NAME and not given.get("rest"):
        _check_commands(given)
    kind = KINDS[engine]
    for name, remedy in kind.FILES.items():
        path = given.get(name)
        if path and (reason := _unreadable(Path(path))):
            raise SpecInvalid(
                f"--set {name}={path}: {reason}",
                hint=f"{remedy.replace('FILE', path)}; then run: {_up_command(engine, given)}",
            )
    folder = (
        Path(given["folder"])
        if engine == SlurmSettings.NAME and given.get("folder")
        else None
    )
    if folder is not None and not _nearest_existing_path(folder).is_dir():
        raise SpecInvalid(
            f"--set folder={folder}: {_nearest_existing_path(folder)} is not a "
            "directory",
            hint="choose another directory: "
            f"{_up_command(engine, {**given, 'folder': 'FOLDER'})}",
        )
    if folder is not None and (reason := _unwritable(folder)):
        raise SpecInvalid(
            f"--set folder={folder}: {reason}",
            hint="create the directory so that the head's account can write to it: "
            f"mkdir -p {folder}; then run: {_up_command(engine, given)}",
        )
    rest = str(given.get("rest") or "")
    if rest.startswith(_SOCKET) and not Path(rest.removeprefix(_SOCKET)).is_socket():
        raise SpecInvalid(
            f"--set rest={rest}: no slurmrestd listens on this socket",
            hint=f"start slurmrestd: slurmrestd {rest}; then run: "
            f"{_up_command(engine, given)}",
        )


def _check_commands(given: Mapping[str, Any]) -> None:
    """Check that the Slurm commands in PATH are Slurm's own.

    Raises: Conflict if the head would find a command of `corral slurm-shims`, which
    sends its requests to Corral, and so to this head.
    """
    for name in _COMMANDS:
        path = Path(which(name) or os.devnull)
        if not is_shim(path):
            continue
        folders = os.environ.get("PATH", "").split(os.pathsep)
        slurm_paths = (which(name, path=folder) for folder in folders if folder)
        slurms = next(
            (
                Path(slurm_path).parent
                for slurm_path in slurm_paths
                if slurm_path and not is_shim(Path(slurm_path))
            ),
            None,
        )
        slurm_folder = quote(str(slurms)) if slurms else "FOLDER_OF_SLURM"
        raise Conflict(
            f"{path} is not a command of Slurm: corral slurm-shims created it, and it "
            "sends its requests to Corral",
            hint="put the folder of Slurm's own commands first in PATH: "
            f'PATH={slurm_folder}:"$PATH" {_up_command(SlurmSettings.NAME, given)}',
        )


def example(name: str, engine: str | None) -> str:
    """Return an example NAME=VALUE that the engine accepts. If the engine has no
    setting of this name, return an example of another setting."""
    kinds = [
        kind
        for required_engine, kind in KINDS.items()
        if engine in (required_engine, None)
    ]
    kind = next((kind for kind in kinds if name in types_of(kind)), None)
    return example_of(kind, name) if kind else example_of(SlurmSettings, "partition")


def _up_command(engine: str, given: Mapping[str, Any]) -> str:
    """Return the `corral up` command that requests these settings."""
    pairs = (
        quote(f"{name}={_format_setting_value(value)}") for name, value in given.items()
    )
    return " ".join(
        ["corral up --engine", engine, *(f"--set {pair}" for pair in pairs)]
    )


def _format_setting_value(value: Any) -> str:
    return ",".join(value) if isinstance(value, list | tuple) else str(value)


def _engine_with_settings(given: Mapping[str, Any]) -> str:
    """Return the first engine that has all these settings, else Slurm."""
    having = (
        engine
        for engine, kind in KINDS.items()
        if given.keys() <= types_of(kind).keys()
    )
    return next(having, SlurmSettings.NAME)


def _unreadable(path: Path) -> str:
    if not path.exists():
        return "this file does not exist"
    if not path.is_file():
        return "this is not a regular file"
    return (
        "" if os.access(path, os.R_OK) else "the head's account cannot read this file"
    )


def _nearest_existing_path(folder: Path) -> Path:
    """Return the folder if it exists, else its nearest existing parent."""
    return next(path for path in (folder, *folder.parents) if path.exists())


def _unwritable(folder: Path) -> str:
    """Return why the head's account cannot create the folder; "" if it can."""
    if os.access(path := _nearest_existing_path(folder), os.W_OK | os.X_OK):
        return ""
    return f"{path} cannot be written by the head's account"
