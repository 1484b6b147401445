"""A node's unpacked images: each once, found again by its content, the oldest making room."""

import fcntl
import os
import shutil
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Lock
from typing import Final

from corral.agent.image import tools
from corral.agent.image.root import ImageRoot
from corral.agent.image.tools import Found, ImageTrouble
from corral.domain.image import ImageKind, image_of

KEPT: Final = 10
USED: Final = "image.used"  # in an attempt's folder: the id of the image that it runs in
LOCK: Final = ".lock"
_PARTIAL: Final = ".partial"


class Images:
    """In the node's folder `images`, or in one that agents share whose folders lie side by side.
    Used in threads; one image is fetched at a time."""

    def __init__(self, node_dir: Path, shared: Path | None = None) -> None:
        self._folder = node_dir / "images" if shared is None else shared
        self._is_shared = shared is not None
        self._nodes = (node_dir.parent, f"*/attempts/*/{USED}")
        if shared is None:
            self._nodes = (node_dir, f"attempts/*/{USED}")
        self._lock = Lock()

    def ready(
        self, text: str, *, seen: tuple[str, ...], work: str, gpu: bool, user: Path
    ) -> ImageRoot:
        """The image as a rank enters it, but for `upper`. `user`: a file in the attempt's folder,
        which says that it is in use for as long as it lies there.

        Raises: ImageTrouble, OSError.
        """
        try:
            image = image_of(text)
        except ValueError as wrong:
            raise ImageTrouble(str(wrong), infra=False) from None
        if image.kind == ImageKind.APPTAINER:
            tool = tools.tool_of(tools.APPTAINER_TOOLS, image.name)
            if not os.path.exists(image.name):
                raise ImageTrouble(f"there is no file {image.name} on this node", infra=False)
            words = tools.apptainer_words(tool, image.name, seen=seen, work=work, gpu=gpu)
            return ImageRoot(words=words)
        with self._lock, self._alone():
            tool = tools.oci_tool(image.name)
            known = tools.found(tool, image.name)
            root = self._unpacked(tool, known)
            user.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            user.write_text(known.id)
        libraries = tools.driver_libraries() if gpu else []
        return ImageRoot(root=str(root), seen=seen, libraries=libraries, env=known.env)

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """Among the agents that share the folder. Raises: OSError."""
        if not self._is_shared:
            yield
            return
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        found = self._folder.lstat()
        if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid():
            raise PermissionError(f"{self._folder} is not this account's own folder")
        with (self._folder / LOCK).open("a") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield

    def _unpacked(self, tool: str, known: Found) -> Path:
        root = self._folder / known.id
        if not root.exists():
            self._make_room()
            partial = self._folder / f"{known.id}{_PARTIAL}"
            shutil.rmtree(partial, ignore_errors=True)
            partial.mkdir(mode=0o755, parents=True)
            try:
                tools.unpack(tool, known.id, partial)
                partial.chmod(0o755)
                partial.rename(root)
            finally:
                shutil.rmtree(partial, ignore_errors=True)
        os.utime(root)  # when it was last asked for
        return root

    def _make_room(self) -> None:
        """Those that nobody runs in go, the longest unused first."""
        if not self._folder.exists():
            return
        there = self._folder.iterdir()
        unpacked = [one for one in there if one.is_dir() and not one.name.endswith(_PARTIAL)]
        folder, users = self._nodes
        used = {file.read_text() for file in folder.glob(users)}
        idle = [one for one in unpacked if one.name not in used]
        idle.sort(key=lambda one: one.stat().st_mtime)
        for one in idle[: max(len(unpacked) - KEPT + 1, 0)]:
            shutil.rmtree(one, ignore_errors=True)
