"""Making an unpacked image the root of one process, and of all processes that it
starts.

The image is the lower layer of an overlay; a rank's changes go to an upper layer in the
attempt's own folder. No other rank sees these changes, and the image keeps none of
them. Apart from its root the process is unchanged: it keeps its parent, containment,
user and network. While the root is prepared, links inside the image are never followed.
"""

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from corral.agent import kernel_mounts
from corral.agent.image.root import ImageRoot

# where images of CUDA look for the driver's
LIBRARIES: Final = "/usr/local/nvidia/lib64"
KERNEL: Final = ("/proc", "/sys", "/dev")
NETWORK: Final = ("/etc/resolv.conf", "/etc/hosts")
_UPPER_BYTES: Final = "size=50%"


def enter_image(image: ImageRoot) -> None:
    """Make the image the root of this process. Call this once, while the process has
    one thread.

    Raises: OSError when this fails.
    """
    upper = Path(image.upper)
    root = upper / "root"
    upper.mkdir(mode=0o700, parents=True, exist_ok=True)
    root.mkdir(mode=0o755, exist_ok=True)
    below = os.stat(image.root)
    user = kernel_mounts.own_mounts()
    flags = kernel_mounts.MS_NODEV | kernel_mounts.MS_NOSUID
    try:
        kernel_mounts.overlay(image.root, upper, str(root), user=user, flags=flags)
    except OSError:
        # the folder lies on what cannot be an upper layer itself: memory can
        kernel_mounts.mount("tmpfs", str(upper), "tmpfs", flags, _UPPER_BYTES)
        root.mkdir(mode=0o755)
        kernel_mounts.overlay(image.root, upper, str(root), user=user, flags=flags)
    with suppress(PermissionError):  # the image's own folder is its owner's to write to
        os.chown(root, below.st_uid, below.st_gid)
    for path in (*KERNEL, *NETWORK, *image.seen):
        if os.path.exists(path):
            _bind_into_root(str(root), path, path)
    for library in image.libraries:
        _bind_into_root(str(root), library, f"{LIBRARIES}/{os.path.basename(library)}")
    kernel_mounts.pivot(str(root))


def _bind_into_root(root: str, source: str, at: str) -> None:
    with _open_created_path(root, at, folder=os.path.isdir(source)) as target:
        kernel_mounts.bind(os.path.realpath(source), target)


@contextmanager
def _open_created_path(root: str, path: str, *, folder: bool) -> Iterator[str]:
    """Create the file or folder at `path` below `root`, and yield a name by which it
    can be opened.

    A link on the path is replaced by a folder.
    """
    opened = [os.open(root, os.O_PATH | os.O_DIRECTORY)]
    try:
        *parents, leaf_name = [segment for segment in path.split("/") if segment]
        for name in parents:
            opened.append(_open_subfolder(opened[-1], name))
        opened.append(
            _open_subfolder(opened[-1], leaf_name)
            if folder
            else _open_created_file(opened[-1], leaf_name)
        )
        yield f"/proc/self/fd/{opened[-1]}"
    finally:
        for descriptor in opened:
            os.close(descriptor)


def _open_subfolder(parent: int, name: str) -> int:
    kind = _file_mode(parent, name)
    if kind is not None and not stat.S_ISDIR(kind):
        os.unlink(name, dir_fd=parent)
    with suppress(FileExistsError):
        os.mkdir(name, 0o755, dir_fd=parent)
    return os.open(name, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=parent)


def _open_created_file(parent: int, name: str) -> int:
    kind = _file_mode(parent, name)
    if kind is not None and not stat.S_ISREG(kind):
        os.unlink(name, dir_fd=parent)
        kind = None
    if kind is None:
        flags = os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_NOFOLLOW
        os.close(os.open(name, flags, 0o644, dir_fd=parent))
    return os.open(name, os.O_PATH | os.O_NOFOLLOW, dir_fd=parent)


def _file_mode(parent: int, name: str) -> int | None:
    try:
        return os.stat(name, dir_fd=parent, follow_symlinks=False).st_mode
    except FileNotFoundError:
        return None
