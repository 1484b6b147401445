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


@dataclass(slots=True, kw_only=True)
class Inside:
    """`image` None: the node as it is. `namespaces` are the kernel's, open as
    descriptors: setup, ranks and shells of an attempt see one and the same image, and
    each other's changes in it."""

    image: ImageRoot | None = None
    namespaces: dict[str, int] = field(default_factory=dict)

    @property
    def is_image(self) -> bool:
        return self.image is not None

    def shell(self, own: str) -> str:
        """The node's own shell, or the one that every image has."""
        return own if self.image is None else SHELL

    def words(self, words: Sequence[str]) -> list[str]:
        return [*(self.image.words if self.image else ()), *words]

    def env(self, env: Mapping[str, str], work: str) -> dict[str, str]:
        """The image's variables below the job's; home is where the job works, for an
        image knows no account of the node's."""
        if self.image is None or not self.image.root:
            return dict(env)
        inside = {**env, "HOME": work, "SHELL": SHELL}
        if self.image.libraries:
            paths = [LIBRARIES, inside.get("LD_LIBRARY_PATH", "")]
            inside["LD_LIBRARY_PATH"] = ":".join(filter(None, paths))
        return inside

    def enter(self) -> None:
        """In a fresh process of the attempt. Raises: OSError."""
        if self.namespaces:
            kernel_mounts.enter_namespaces(self.namespaces)


def inside_of(image: Mapping[str, Any] | None, view: int | None = None) -> Inside:
    """Made once, by the shim. `view`: the mount namespace of the attempt, open as a
    descriptor, in which the image is entered; None: the shim's own.

    Raises: OSError when the image cannot be entered.
    """
    if image is None:
        return Inside()
    root = ImageRoot(**image)
    return Inside(image=root, namespaces=_namespaces(root, view) if root.root else {})


def _namespaces(image: ImageRoot, view: int | None) -> dict[str, int]:
    """A child enters the image, its namespaces are opened, and it is not needed any
    more."""
    read_end, say = os.pipe2(os.O_CLOEXEC)
    pid = os.fork()
    if pid == 0:
        _enter_and_wait(image, view, say)
    os.close(say)
    try:
        with os.fdopen(read_end, "rb", buffering=0) as answer:
            reply_bytes = answer.read(1000) or b"x"
        if reply_bytes != b"\n":
            raise OSError(
                f"the image cannot be entered: {reply_bytes.decode(errors='replace')}"
            )
        return kernel_mounts.namespaces_of(pid)
    finally:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)


def _enter_and_wait(image: ImageRoot, view: int | None, say: int) -> None:
    """In the child, which never returns from here."""
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
