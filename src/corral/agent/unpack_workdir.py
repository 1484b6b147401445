"""Unpacking of a workdir snapshot, so that no member can reach outside its folder.

`python -P -m corral.agent.unpack_workdir ARCHIVE FOLDER` does it with a low priority,
so that a large snapshot does not delay the starts of other jobs.
"""

import gzip
import os
import shutil
import stat
import sys
import tarfile
from collections.abc import Sequence
from pathlib import Path, PurePosixPath
from typing import Final

from corral.agent.bounded_tar import (
    BadArchive,
    BoundsExceeded,
    Content,
    UnpackLimits,
    path_parts,
    unpack_members,
)
from corral.agent.low_priority import take_low_priority
from corral.domain.errors import Refusal

WORKDIR: Final = UnpackLimits(members=1_000_000, bytes=64 * 1024**3, seconds=1800.0)
SMALL: Final = UnpackLimits(
    members=2_000, bytes=64 * 1024**2, seconds=2.0
)  # done at once, in a thread
EXIT_UNSAFE: Final = 3  # of the helper; what it writes to stderr says why
EXIT_TROUBLE: Final = 4


class SnapshotUnsafe(Refusal):
    """The archive holds members that a snapshot of a workdir never has."""

    code = "snapshot_unsafe"


class SnapshotTooLarge(SnapshotUnsafe):
    """The archive unpacks to more than its bounds allow."""


UNREADABLE: Final = (SnapshotUnsafe, OSError)


def unpack(archive: Path, into: Path, bounds: UnpackLimits = WORKDIR) -> None:
    """Unpack a .tar.gz into a new folder: files, folders, and links that stay inside
    it.

    Every folder on the way to a member is opened without following links, so that a
    link from the archive itself leads nowhere.

    Raises: SnapshotUnsafe; OSError when the archive cannot be read or the folder cannot
    be written.
    """
    if into.exists():
        shutil.rmtree(into)
    into.mkdir(parents=True, mode=0o755)
    root = os.open(into, os.O_RDONLY | os.O_DIRECTORY)
    workdir = _Workdir(root, bounds)
    try:
        with gzip.open(archive) as stream:
            unpack_members(stream, bounds, workdir.place, disk=root)
    except BoundsExceeded as wrong:
        raise SnapshotTooLarge(
            f"{archive.name}: {wrong}, the limit for a workdir"
        ) from wrong
    except BadArchive as wrong:
        raise SnapshotUnsafe(f"{archive.name}: {wrong}") from wrong
    finally:
        os.close(root)


class _Workdir:
    """The new folder into which the archive is unpacked."""

    def __init__(self, root: int, bounds: UnpackLimits) -> None:
        self._root = root
        self._bounds = bounds

    def place(self, member: tarfile.TarInfo, content: Content) -> None:
        """Create the archive's member in the folder. Raises: BadArchive when the member
        leads out of the folder or is of a wrong kind; OSError."""
        if member.name.startswith("/") or member.linkname.startswith("/"):
            raise BadArchive(f"{member.name[:200]!r} leads out of the workdir")
        *folders, name = path_parts(member.name, self._bounds) or [""]
        if not name:
            return  # the folder itself
        parent = _open_folder_below(self._root, folders, member)
        try:
            self._place_in(parent, folders, name, member, content)
        finally:
            os.close(parent)

    def _place_in(
        self,
        parent: int,
        folders: Sequence[str],
        name: str,
        member: tarfile.TarInfo,
        content: Content,
    ) -> None:
        if member.isdir():
            _make_folder(name, parent)
            os.close(_open_folder_below(parent, [name], member))
        elif member.isreg():
            _write_file(member, content, name, parent)
        elif member.issym():
            _check_link(member, folders)
            os.symlink(member.linkname, name, dir_fd=parent)
        elif member.islnk():
            self._create_hard_link(member, name, parent)
        else:
            raise BadArchive(
                f"{member.name[:200]!r} is neither a file, a folder nor a link"
            )

    def _create_hard_link(
        self, member: tarfile.TarInfo, name: str, parent: int
    ) -> None:
        *folders, target = path_parts(member.linkname, self._bounds) or [""]
        try:
            source = _open_folder_below(self._root, folders, member, make=False)
        except FileNotFoundError as missing:
            raise BadArchive(
                f"{member.name[:200]!r} is a hard link to a missing file"
            ) from missing
        try:
            if not stat.S_ISREG(
                os.stat(target, dir_fd=source, follow_symlinks=False).st_mode
            ):
                raise BadArchive(
                    f"{member.name[:200]!r} is a hard link to {member.linkname[:200]!r}, "
                    "which is not a file"
                )
            os.link(
                target,
                name,
                src_dir_fd=source,
                dst_dir_fd=parent,
                follow_symlinks=False,
            )
        except FileNotFoundError as missing:
            raise BadArchive(
                f"{member.name[:200]!r} is a hard link to a missing file"
            ) from missing
        finally:
            os.close(source)


def _open_folder_below(
    start: int, folders: Sequence[str], member: tarfile.TarInfo, *, make: bool = True
) -> int:
    """Return a descriptor of the folder below `start`. Missing folders are created,
    unless `make` is False; a link on the way is refused."""
    current_descriptor = os.dup(start)
    for folder in folders:
        try:
            if make:
                _make_folder(folder, current_descriptor)
            flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW
            below = os.open(folder, flags, dir_fd=current_descriptor)
        except NotADirectoryError as link:
            name = member.name[:200]
            raise BadArchive(
                f"the path of {name!r} leads through {folder!r}, which is not a folder"
            ) from link
        finally:
            os.close(current_descriptor)
        current_descriptor = below
    return current_descriptor


def _make_folder(name: str, parent: int) -> None:
    try:
        os.mkdir(name, 0o755, dir_fd=parent)
    except FileExistsError:
        return


def _write_file(
    member: tarfile.TarInfo, content: Content, name: str, parent: int
) -> None:
    mode = 0o755 if member.mode & stat.S_IXUSR else 0o644
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
    target = os.open(name, flags, mode, dir_fd=parent)
    try:
        content.write_to(target)
        os.fchmod(target, mode)
        os.utime(target, (member.mtime, member.mtime))
    finally:
        os.close(target)


def _check_link(member: tarfile.TarInfo, folders: Sequence[str]) -> None:
    """Check that a link points to a path inside the folder, relative to the link's own
    place."""
    path = PurePosixPath(member.linkname)
    depth = len(folders)
    for segment in path.parts:
        depth += -1 if segment == ".." else 1
        if depth < 0:
            break
    if (
        not member.linkname
        or "\0" in member.linkname
        or path.is_absolute()
        or depth < 0
    ):
        raise BadArchive(
            f"{member.name[:200]!r} is a link that leads out of the workdir: "
            f"{member.linkname[:200]!r}"
        )


def helper_words(archive: Path, into: Path) -> list[str]:
    """Return the command line of a helper process that unpacks the archive into the
    folder."""
    return [
        sys.executable,
        "-P",
        "-m",
        "corral.agent.unpack_workdir",
        str(archive),
        str(into),
    ]


def main(words: Sequence[str]) -> int:
    take_low_priority()
    try:
        unpack(Path(words[0]), Path(words[1]))
    except SnapshotUnsafe as wrong:
        print(wrong.message, file=sys.stderr)
        return EXIT_UNSAFE
    except OSError as trouble:
        print(trouble, file=sys.stderr)
        return EXIT_TROUBLE
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
