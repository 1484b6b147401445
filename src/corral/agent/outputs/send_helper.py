"""A short-lived helper that sends a part of a work folder, as the account that owns the
folder.

`python -m corral.agent.outputs.send_helper WORK PATH` prints the file or folder as a
tar stream. It opens the folder, changes to the account of its owner and follows no link
that leads out. So it reads no more than the ranks could read, whatever they have put
into the folder. A refusal is a sentence on stderr and exit code 3, or 4 where the file
does not exist. The stream of a folder begins with a member for the folder itself.
"""

import errno
import os
import stat
import sys
import tarfile
from typing import IO, Final

from corral.agent.low_priority import take_low_priority
from corral.agent.outputs.folder_walk import FOLDER, Entry, walk

REFUSED: Final = 3
ABSENT: Final = 4
CHUNK_BYTES: Final = 256 * 1024
MOST_LINKS: Final = 40  # as the kernel follows
_FILE: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_ABSENT: Final = (errno.ENOENT, errno.ENOTDIR, errno.ELOOP)


class OutputNotSent(Exception):
    """Error: the path cannot be sent; the message is a sentence for the user."""

    code = REFUSED


class NotThere(OutputNotSent):
    """Error: the work folder has no such file."""

    code = ABSENT


def send(folder: int, path: str, output: IO[bytes]) -> None:
    """Write the file or folder at `path` below the open folder to the stream.

    Raises: OutputNotSent when it cannot be sent; OSError when reading fails.
    """
    path_segments = resolved(folder, path)
    opened = [os.dup(folder)]
    try:
        for segment in path_segments[:-1]:
            opened.append(os.open(segment, FOLDER, dir_fd=opened[-1]))
        status = os.stat(
            path_segments[-1] if path_segments else ".",
            dir_fd=opened[-1],
            follow_symlinks=False,
        )
        if stat.S_ISDIR(status.st_mode):
            if path_segments:
                opened.append(os.open(path_segments[-1], FOLDER, dir_fd=opened[-1]))
            send_folder(opened[-1], output)
        elif stat.S_ISREG(status.st_mode):
            name = path.rstrip("/").rpartition("/")[2]
            send_file(Entry(name, path_segments[-1], opened[-1], status), output)
        else:
            raise OutputNotSent(f"{path[:200]} is neither a file nor a folder")
    except OSError as trouble:
        if trouble.errno not in _ABSENT:
            raise
        raise NotThere(f"there is no {path[:200]} in the work folder") from None
    finally:
        for descriptor in opened:
            os.close(descriptor)


def resolved(folder: int, path: str) -> list[str]:
    """Return the parts of the path, with links resolved that stay inside the folder.

    Raises: OutputNotSent where the path leads out of the folder.
    """
    escape_error = OutputNotSent(f"{path[:200]} leads out of the work folder")
    resolved_paths: list[str] = []
    todo = path.split("/")
    if path.startswith("/") or "\0" in path or ".." in todo:
        raise escape_error
    links = 0
    while todo:
        segment = todo.pop(0)
        if segment in ("", "."):
            continue
        if segment == "..":
            if not resolved_paths:
                raise escape_error
            resolved_paths.pop()
            continue
        target = _read_link(folder, "/".join([*resolved_paths, segment]))
        links += target is not None
        if target is None:
            resolved_paths.append(segment)
        elif target.startswith("/") or links > MOST_LINKS:
            raise escape_error
        else:
            todo = [*target.split("/"), *todo]
    return resolved_paths


def _read_link(folder: int, path: str) -> str | None:
    """Return the target of a link; None if the path is not a link."""
    try:
        return os.readlink(path, dir_fd=folder)
    except OSError:
        return None


def send_folder(folder: int, output: IO[bytes]) -> None:
    """Send the content of the open folder as a tar stream. Links are left out, because
    at the destination they might lead anywhere.

    Raises: OSError when reading fails.
    """
    with tarfile.open(fileobj=output, mode="w|", bufsize=CHUNK_BYTES) as archive:
        itself = tarfile.TarInfo(".")
        itself.type, itself.mode = tarfile.DIRTYPE, 0o755
        archive.addfile(itself)
        for entry in walk(folder):
            member = _tar_member(entry)
            if entry.is_folder:
                member.type = tarfile.DIRTYPE
                archive.addfile(member)
            elif entry.is_file:
                try:
                    content = os.open(entry.name, _FILE, dir_fd=entry.parent)
                except FileNotFoundError:
                    continue  # a running job has removed it
                _add_to_archive(archive, member, content)


def send_file(entry: Entry, output: IO[bytes]) -> None:
    """Send one file.

    Raises: OSError when reading fails.
    """
    content = os.open(entry.name, _FILE, dir_fd=entry.parent)
    with tarfile.open(fileobj=output, mode="w|", bufsize=CHUNK_BYTES) as archive:
        _add_to_archive(archive, _tar_member(entry), content)


def _tar_member(entry: Entry) -> tarfile.TarInfo:
    member = tarfile.TarInfo(entry.path)
    member.mtime = int(entry.status.st_mtime)
    member.mode = entry.status.st_mode & 0o755 | 0o600
    return member


def _add_to_archive(
    archive: tarfile.TarFile, member: tarfile.TarInfo, content: int
) -> None:
    """Add the open file to the archive with its current size.

    Raises: OSError when reading fails or the file shrinks in the meantime.
    """
    with os.fdopen(content, "rb") as file:
        member.size = os.fstat(content).st_size
        archive.addfile(member, file)


def take_account_of(folder: int) -> None:
    """Change to the account that owns the open folder, if this process runs as root.

    Raises: OSError when this fails.
    """
    folder_stat = os.fstat(folder)
    if os.geteuid() == 0 and folder_stat.st_uid != 0:
        os.setgroups([])
        os.setgid(folder_stat.st_gid)
        os.setuid(folder_stat.st_uid)


def main(words: list[str]) -> None:
    work, path = words
    take_low_priority()
    try:
        folder = os.open(work, FOLDER)
        take_account_of(folder)
        send(folder, path, sys.stdout.buffer)
    except (OutputNotSent, OSError) as refused:
        print(f"{refused}", file=sys.stderr)
        sys.exit(refused.code if isinstance(refused, OutputNotSent) else REFUSED)


if __name__ == "__main__":
    main(sys.argv[1:])
