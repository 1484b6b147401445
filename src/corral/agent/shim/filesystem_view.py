"""File system view of an attempt's processes on a node: an image, or the node's own
files."""

import os
import signal
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Final

from corral.agent import kernel_mounts
from corral.agent.image.enter_root import LIBRARIES, enter_image
from corral.agent.image.root import ImageRoot

SHELL: Final = "/bin/sh"
NO_REASON: Final = "the process that enters it ended without an error message"


@dataclass(slots=True, kw_only=True)
class Inside:
    """File system view of an attempt's processes. `image` is None where they see the
    node's own files. `namespaces` holds open descriptors of kernel namespaces: setup,
    ranks and shells of an attempt enter the same ones, so they see one image and each
    other's changes in it."""

    image: ImageRoot | None = None
    namespaces: dict[str, int] = field(default_factory=dict)

    @property
    def is_image(self) -> bool:
        return self.image is not None

    def shell(self, own: str) -> str:
        """Return `own`, the node's shell, or in an image the shell that every image
        has."""
        return own if self.image is None else SHELL

    def words(self, words: Sequence[str]) -> list[str]:
        return [*(self.image.words if self.image else ()), *words]

    def env(self, env: Mapping[str, str], work: str) -> dict[str, str]:
        """Return the environment of a process: `env` as it is on the node. In an image,
        HOME is `work`, the job's work folder, because an image knows no account of the
        node."""
        if self.image is None or not self.image.root:
            return dict(env)
        inside = {**env, "HOME": work, "SHELL": SHELL}
        if self.image.libraries:
            paths = [LIBRARIES, inside.get("LD_LIBRARY_PATH", "")]
            inside["LD_LIBRARY_PATH"] = ":".join(filter(None, paths))
        return inside

    def enter(self) -> None:
        """Enter the namespaces of the image. Called in a new process of the attempt.
        Raises: OSError."""
        if self.namespaces:
            kernel_mounts.enter_namespaces(self.namespaces)


def inside_of(image: Mapping[str, Any] | None, view: int | None = None) -> Inside:
    """Return the file system view of the attempt. The shim creates it once.

    `view`: the mount namespace of the attempt, open as a descriptor, in which the image
    is entered; None for the shim's own.

    Raises: OSError when the image cannot be entered.
    """
    if image is None:
        return Inside()
    root = ImageRoot(**image)
    return Inside(image=root, namespaces=_namespaces(root, view) if root.root else {})


def _namespaces(image: ImageRoot, view: int | None) -> dict[str, int]:
    """Return descriptors of the image's namespaces. A child process enters the image,
    the shim opens the child's namespaces, and the child is then killed."""
    read_end, say = os.pipe2(os.O_CLOEXEC)
    pid = os.fork()
    if pid == 0:
        _enter_and_wait(image, view, say)
    os.close(say)
    try:
        with os.fdopen(read_end, "rb", buffering=0) as answer:
            reply_bytes = answer.read(1000)
        if reply_bytes != b"\n":
            reason = reply_bytes.decode(errors="replace") or NO_REASON
            raise OSError(f"the image cannot be entered: {reason}")
        return kernel_mounts.namespaces_of(pid)
    finally:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)


def _enter_and_wait(image: ImageRoot, view: int | None, say: int) -> None:
    """Enter the image in the child process, report success or the error on the
    descriptor `say`, and wait to be killed. Never returns."""
    try:
        if view is not None:
            kernel_mounts.enter_namespaces({"mnt": view})
        enter_image(image)
        os.write(say, b"\n")
        while True:
            signal.pause()
    except BaseException as trouble:
        with suppress(OSError):
            os.write(say, f"{trouble}"[:500].encode())
    finally:
        os._exit(1)
