"""Writing of an image's files into one folder, so that no file is written outside it.

Links of an image may point anywhere. They are resolved as the kernel resolves them for
a process whose root is the image, so they never lead out of it. Devices, pipes and
sockets are left out, and so are setuid and setgid bits and extended attributes. Each
file belongs to the account that unpacks.
"""

import os
import shutil
import stat
import tarfile
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from typing import Final

from corral.agent.bounded_tar import BadArchive, Content, UnpackLimits, path_parts

MOST_LINKS: Final = 40  # on the way to one member, as the kernel has it
WHITEOUT: Final = ".wh."  # image-spec: layer.md, "Whiteouts"
OPAQUE: Final = ".wh..wh..opq"
_FOLDER: Final = os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


class ImageTree:
    """The folder of an image while one layer is unpacked into it; each layer has its
    own object."""

    def __init__(self, root: int, bounds: UnpackLimits, *, layered: bool) -> None:
        """Unpack into the open folder `root`. `layered`: names that begin with `.wh.`
        remove files of lower layers."""
        self._root = root
        self._bounds = bounds
        self._layered = layered
        # by this layer, which its own whiteouts spare
        self._placed: set[tuple[str, ...]] = set()
        self._last: tuple[tuple[str, ...], int] | None = None
        self.left_out = 0

    def place(self, member: tarfile.TarInfo, content: Content) -> None:
        """Write one member of the layer.

        Raises: BadArchive, OSError when this fails.
        """
        *folders, name = path_parts(member.name, self._bounds) or [""]
        if not name:
            return  # the root itself
        if self._layered and name.startswith(WHITEOUT):
            self._remove_lower(folders, name)
            return
        if self._layered:
            self._note_placed((*folders, name))
        parent = self._folder(folders)
        if member.isdir():
            self._make_folder(parent, name, member)
        elif member.isreg():
            self._make_file(parent, name, member, content)
        elif member.issym():
            self._make_link(parent, name, member)
        elif member.islnk():
            self._make_hard_link(parent, name, member)
        else:
            self.left_out += 1

    def close(self) -> None:
        self._close_last_folder()

    def _make_folder(self, parent: int, name: str, member: tarfile.TarInfo) -> None:
        if not stat.S_ISDIR(_file_mode(parent, name)):
            self._remove_existing(parent, name)
            os.mkdir(name, 0o700, dir_fd=parent)
        folder = os.open(
            name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=parent
        )
        try:
            # else it could not be filled
            os.fchmod(folder, member.mode & 0o1777 | 0o700)
        finally:
            os.close(folder)

    def _make_file(
        self, parent: int, name: str, member: tarfile.TarInfo, content: Content
    ) -> None:
        self._remove_existing(parent, name)
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        target = os.open(name, flags, 0o600, dir_fd=parent)
        try:
            content.write_to(target)
            os.fchmod(target, member.mode & 0o777)
            with suppress(OverflowError):
                os.utime(target, (member.mtime, member.mtime))
        finally:
            os.close(target)

    def _make_link(self, parent: int, name: str, member: tarfile.TarInfo) -> None:
        target = member.linkname
        if (
            not target
            or "\0" in target
            or len(os.fsencode(target)) >= self._bounds.path_bytes
        ):
            raise BadArchive(f"the link {member.name[:200]!r} has an invalid target")
        self._remove_existing(parent, name)
        os.symlink(target, name, dir_fd=parent)

    def _make_hard_link(self, parent: int, name: str, member: tarfile.TarInfo) -> None:
        *folders, source = path_parts(member.linkname, self._bounds) or [""]
        target_folder = self._resolve_folder(folders, make=False)
        try:
            kind = _file_mode(target_folder, source) if source else 0
            if not (stat.S_ISREG(kind) or stat.S_ISLNK(kind)):
                raise BadArchive(
                    f"{member.name[:200]!r} is a hard link to something that is not a file"
                )
            is_same_file = (
                os.path.sameopenfile(target_folder, parent) and source == name
            )
            if is_same_file:
                return
            self._remove_existing(parent, name)
            os.link(
                source,
                name,
                src_dir_fd=target_folder,
                dst_dir_fd=parent,
                follow_symlinks=False,
            )
        finally:
            os.close(target_folder)

    def _remove_lower(self, folders: Sequence[str], name: str) -> None:
        parent = self._folder(list(folders))
        if name != OPAQUE:
            hidden = name.removeprefix(WHITEOUT)
            if hidden in ("", ".", ".."):
                raise BadArchive(
                    f"the layer is malformed: its deletion marker {name!r} names no file; "
                    "build the image again"
                )
            self._remove_unless_placed(parent, folders, hidden)
            return
        listed = os.open(".", os.O_RDONLY | os.O_DIRECTORY, dir_fd=parent)
        try:
            for child in os.listdir(listed):
                self._remove_unless_placed(listed, folders, child)
        finally:
            os.close(listed)

    def _remove_unless_placed(
        self, parent: int, folders: Sequence[str], name: str
    ) -> None:
        if (*folders, name) not in self._placed:
            self._remove_existing(parent, name)

    def _note_placed(self, parts: tuple[str, ...]) -> None:
        """Record that this layer wrote the member at the path `parts`, and so its
        parent folders too."""
        while parts and parts not in self._placed:
            self._placed.add(parts)
            parts = parts[:-1]

    def _remove_existing(self, parent: int, name: str) -> None:
        """Remove the existing file or folder at the place of a new member; a link is
        removed, not followed."""
        kind = _file_mode(parent, name)
        if not kind:
            return
        if stat.S_ISDIR(kind):
            shutil.rmtree(name, dir_fd=parent)
        else:
            os.unlink(name, dir_fd=parent)

    # --- ways to folders

    def _folder(self, parts: list[str]) -> int:
        """Return a descriptor of the folder; it is created if it is missing. The tree
        closes the descriptor. The last folder stays open, because members of one folder
        usually follow each other."""
        key = tuple(parts)
        if self._last is None or self._last[0] != key:
            folder = self._resolve_folder(parts, make=True)
            self._close_last_folder()
            self._last = (key, folder)
        return self._last[1]

    def _close_last_folder(self) -> None:
        if self._last is not None:
            os.close(self._last[1])
            self._last = None

    def _resolve_folder(self, parts: Sequence[str], *, make: bool) -> int:
        """Return the folder's descriptor, with links resolved as a process inside the
        image would. `make`: create missing folders."""
        pending = deque(parts)
        stack = [os.dup(self._root)]
        links = 0
        try:
            while pending:
                name = pending.popleft()
                if name in ("", "."):
                    continue
                if name == "..":
                    if len(stack) > 1:
                        os.close(stack.pop())
                    continue
                try:
                    stack.append(self._open_subfolder(stack[-1], name, make=make))
                except NotADirectoryError:
                    links += 1
                    target = self._link_on_the_way(stack[-1], name, links)
                    while target.startswith("/") and len(stack) > 1:
                        os.close(stack.pop())
                    pending.extendleft(reversed(target.split("/")))
                if len(stack) + len(pending) > 4 * self._bounds.depth:
                    raise BadArchive(
                        f"the path to {name[:200]!r} is too deep or has too many links"
                    )
            return stack.pop()
        finally:
            for descriptor in stack:
                os.close(descriptor)

    def _open_subfolder(self, parent: int, name: str, *, make: bool) -> int:
        try:
            return os.open(name, _FOLDER, dir_fd=parent)
        except FileNotFoundError:
            if not make:
                raise BadArchive(
                    f"the folder {name!r} in the target of a hard link does not exist"
                ) from None
        os.mkdir(name, 0o755, dir_fd=parent)
        return os.open(name, _FOLDER, dir_fd=parent)

    def _link_on_the_way(self, parent: int, name: str, links: int) -> str:
        if links > MOST_LINKS or not stat.S_ISLNK(_file_mode(parent, name)):
            raise BadArchive(f"{name!r} in the path of a file is not a folder")
        return os.readlink(name, dir_fd=parent)


def _file_mode(parent: int, name: str) -> int:
    """Return the mode of the file in the folder `parent`; 0 if it does not exist."""
    try:
        return os.stat(name, dir_fd=parent, follow_symlinks=False).st_mode
    except FileNotFoundError:
        return 0
