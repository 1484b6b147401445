"""Unpacking a workdir snapshot so that nothing in it can reach outside its folder."""

import os
import shutil
import stat
import tarfile
import zlib
from pathlib import Path, PurePosixPath
from typing import Final

from corral.domain.errors import Refusal

LARGEST_BYTES: Final = 64 * 1024**3  # of all its files together, against an archive made to burst
MOST_MEMBERS: Final = 1_000_000
UNREADABLE: Final = (Refusal, OSError, tarfile.TarError, EOFError, zlib.error)


class SnapshotUnsafe(Refusal):
    """The archive holds what no snapshot of a workdir holds."""

    code = "snapshot_unsafe"


def unpack(archive: Path, into: Path) -> None:
    """Unpack a .tar.gz into the folder, which is made anew: files, folders, links that stay inside.

    Every folder on the way to a member is opened without following links, so that a link that
    the archive itself brought leads nowhere.
    Raises: SnapshotUnsafe; OSError and tarfile.TarError when it cannot be read or written.
    """
    if into.exists():
        shutil.rmtree(into)
    into.mkdir(parents=True, mode=0o755)
    root = os.open(into, os.O_RDONLY | os.O_DIRECTORY)
    left_bytes = LARGEST_BYTES
    try:
        with tarfile.open(archive, "r:gz") as members:
            for number, member in enumerate(members):
                left_bytes -= member.size
                if left_bytes < 0 or number >= MOST_MEMBERS:
                    raise SnapshotUnsafe(f"{archive.name} unpacks to more than a workdir may hold")
                _place(members, member, root)
    finally:
        os.close(root)


def _place(members: tarfile.TarFile, member: tarfile.TarInfo, root: int) -> None:
    *folders, name = _parts(member.name) or [""]
    if not name:
        return  # the folder itself
    parent = _descend(root, folders, member)
    try:
        if member.isdir():
            _make_folder(name, parent)
            os.close(_descend(parent, [name], member))
        elif member.isreg():
            _write(members, member, name, parent)
        elif member.issym():
            _check_link(member, folders)
            os.symlink(member.linkname, name, dir_fd=parent)
        elif member.islnk():
            _link(member, name, parent, root)
        else:
            raise SnapshotUnsafe(f"{member.name!r} is neither a file, a folder nor a link")
    finally:
        os.close(parent)


def _parts(name: str) -> list[str]:
    """The names on the way to a member. Raises: SnapshotUnsafe when the way leads outside."""
    path = PurePosixPath(name)
    if path.is_absolute() or ".." in path.parts or "\0" in name:
        raise SnapshotUnsafe(f"{name!r} leads out of the workdir")
    return list(path.parts)


def _descend(start: int, folders: list[str], member: tarfile.TarInfo) -> int:
    """A descriptor of the folder, made where it is missing; a link on the way is refused."""
    here = os.dup(start)
    for folder in folders:
        try:
            _make_folder(folder, here)
            flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW
            below = os.open(folder, flags, dir_fd=here)
        except NotADirectoryError as link:
            raise SnapshotUnsafe(f"{member.name!r} would be written through {folder!r}") from link
        finally:
            os.close(here)
        here = below
    return here


def _make_folder(name: str, parent: int) -> None:
    try:
        os.mkdir(name, 0o755, dir_fd=parent)
    except FileExistsError:
        return


def _write(members: tarfile.TarFile, member: tarfile.TarInfo, name: str, parent: int) -> None:
    mode = 0o755 if member.mode & stat.S_IXUSR else 0o644
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
    source = members.extractfile(member)
    assert source is not None  # a regular file has content
    with source, os.fdopen(os.open(name, flags, mode, dir_fd=parent), "wb") as target:
        shutil.copyfileobj(source, target, 1024 * 1024)
        os.fchmod(target.fileno(), mode)
        os.utime(target.fileno(), (member.mtime, member.mtime))


def _check_link(member: tarfile.TarInfo, folders: list[str]) -> None:
    """A link may point at anything inside, counted from where it lies."""
    path = PurePosixPath(member.linkname)
    depth = len(folders)
    for part in path.parts:
        depth += -1 if part == ".." else 1
        if depth < 0:
            break
    if path.is_absolute() or depth < 0:
        raise SnapshotUnsafe(f"{member.name!r} is a link out of the workdir: {member.linkname!r}")


def _link(member: tarfile.TarInfo, name: str, parent: int, root: int) -> None:
    *folders, target = _parts(member.linkname) or [""]
    source = _descend(root, folders, member)
    try:
        if not stat.S_ISREG(os.stat(target, dir_fd=source, follow_symlinks=False).st_mode):
            raise SnapshotUnsafe(f"{member.name!r} is a hard link to no file: {member.linkname!r}")
        os.link(target, name, src_dir_fd=source, dst_dir_fd=parent, follow_symlinks=False)
    except FileNotFoundError as missing:
        raise SnapshotUnsafe(f"{member.name!r} links to a file that is not there") from missing
    finally:
        os.close(source)
