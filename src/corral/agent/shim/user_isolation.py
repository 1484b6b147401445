"""Isolation of an attempt's ranks from other users of a machine: a pid namespace with
its own /proc, and private /tmp, /var/tmp and /dev/shm. Root prepares it once for each
attempt."""

import os
import sys
from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import corral
from corral.agent import kernel_mounts

TMP: Final = "tmp"  # in the attempt's folder: what its ranks write to their /tmp
_FOLDERS: Final = {"/tmp": "tmp", "/var/tmp": "var-tmp"}
_SHM: Final = "/dev/shm"
_FLAGS: Final = kernel_mounts.MS_NOSUID | kernel_mounts.MS_NODEV


@dataclass(frozen=True, slots=True, kw_only=True)
class Apart:
    """Isolation of an attempt, as a part of the shim's spec.

    Args:
        shm: whether the attempt has its own /dev/shm.
        tmp: whether the attempt has its own /tmp and /var/tmp.
        folder: the attempt's folder, which holds the files of its /tmp.
        seen: folders below /tmp that ranks can still see.
        memory: a folder below /dev/shm that ranks can still see; "": none.
    """

    shm: bool
    tmp: bool
    folder: str
    seen: Sequence[str] = ()
    memory: str = ""

    def furnish(self) -> None:
        """Mount the attempt's own /dev/shm, /tmp and /var/tmp. Called in a mount
        namespace that is not shared.

        Raises: OSError.
        """
        if self.shm and os.path.isdir(_SHM):
            self._furnish_memory()
        if not self.tmp:
            return
        with ExitStack() as stack:
            sources = {
                mount_point: _descriptor_path(stack, self._source(name))
                for mount_point, name in _FOLDERS.items()
            }
            visible_sources = {
                path: _descriptor_path(stack, Path(path))
                for path in _below_tmp(self.seen)
            }
            for mount_point, source in sources.items():
                if os.path.isdir(mount_point):
                    kernel_mounts.bind(source, mount_point)
            for path, source in visible_sources.items():
                os.makedirs(path, mode=0o755, exist_ok=True)
                kernel_mounts.bind(source, path)

    def _furnish_memory(self) -> None:
        """Mount an own /dev/shm, in which the folder of the job's saves is the only
        thing that other attempts see."""
        with ExitStack() as stack:
            source = ""
            if self.memory and os.path.isdir(self.memory):
                source = _descriptor_path(stack, Path(self.memory))
            kernel_mounts.mount("tmpfs", _SHM, "tmpfs", _FLAGS, "mode=1777")
            if source:
                os.makedirs(self.memory, mode=0o755, exist_ok=True)
                kernel_mounts.bind(source, self.memory)

    def _source(self, name: str) -> Path:
        """Create and return the folder to be mounted in place of the temporary folder
        of this name. Each account may write its own files in it."""
        parent = Path(self.folder) / TMP
        parent.mkdir(mode=0o700, exist_ok=True)
        source = parent / name
        source.mkdir(exist_ok=True)
        source.chmod(0o1777)
        return source


def own_code() -> tuple[str, ...]:
    """Return the folders of the interpreter and of Corral, from which ranks may start
    programs."""
    package = os.path.dirname(os.path.dirname(os.path.abspath(corral.__file__)))
    return (sys.prefix, sys.base_prefix, package)


def _below_tmp(paths: Iterable[str]) -> list[str]:
    """Return the paths that a mount on a temporary folder would hide, parents first."""
    real_paths = {os.path.realpath(path) for path in paths}
    hidden = (
        path
        for path in real_paths
        if path.startswith(tuple(f"{mount_point}/" for mount_point in _FOLDERS))
    )
    return sorted((path for path in hidden if os.path.isdir(path)), key=len)


def _descriptor_path(stack: ExitStack, path: Path) -> str:
    """Return a path that leads to the folder whatever is mounted over its own path.
    Raises: OSError."""
    descriptor = os.open(path, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    stack.callback(os.close, descriptor)
    return f"/proc/self/fd/{descriptor}"
