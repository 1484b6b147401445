"""Packing of a workdir into a snapshot: one tar.gz that is identical for identical
content.

Files that .gitignore or .corralignore ignore are left out, and so are .git and
__pycache__. Credentials are left out unless a line of a .corralignore includes them
(`!.env`); directories of clusters are always left out. Links are kept if they point
inside. Owners, times and all mode bits except "executable" are not stored.
"""

import gzip
import hashlib
import os
import stat
import tarfile
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, TYPE_CHECKING, Final

from corral.client.credentials import (
    cluster_around,
    is_cluster,
    is_credential,
    left_out_text,
    never_sent_text,
    own_directories,
)
from corral.domain.errors import SpecInvalid, TooLarge
from corral.domain.units import size_text

if TYPE_CHECKING:
    from pathspec import GitIgnoreSpec

MAX_BYTES: Final = 512 * 1000**2
MAX_FILES: Final = 100_000
NEVER: Final = frozenset({".git", "__pycache__"})
LET_IN: Final = ".corralignore"  # a `!` line in it lets a credential in
IGNORE_FILES: Final = (".gitignore", LET_IN)  # the later one has the last word
_PIECE: Final = 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """A packed workdir in a temporary file, which exists while the context of `pack` is
    open."""

    sha256: str
    size_bytes: int
    file: IO[bytes]
    # sentences about what was left out, for the person who submits
    notes: tuple[str, ...] = ()

    def pieces(self) -> Iterator[bytes]:
        self.file.seek(0)
        while piece := self.file.read(_PIECE):
            yield piece


@dataclass(frozen=True, slots=True, kw_only=True)
class _Entry:
    """One file, folder or link to pack. `name` is the relative path, with slashes."""

    name: str
    path: Path
    found: os.stat_result


@dataclass(slots=True)
class _Walk:
    """Result of a walk through a workdir: the entries to pack, and those that are left
    out although no ignore file names them, which are credentials and directories of
    clusters."""

    root: Path
    entries: list[_Entry] = field(default_factory=list)
    credentials: list[str] = field(default_factory=list)
    clusters: list[str] = field(default_factory=list)

    def notes(self) -> tuple[str, ...]:
        notes_list = []
        if self.credentials:
            notes_list.append(left_out_text(sorted(self.credentials), self.root))
        if self.clusters:
            notes_list.append(never_sent_text(sorted(self.clusters)))
        return tuple(notes_list)


# (folder, name of the file, its patterns)
_Specs = tuple[tuple[str, str, "GitIgnoreSpec"], ...]


def notes_on(root: Path) -> tuple[str, ...]:
    """Return sentences for the user about credentials and directories of clusters that
    a snapshot of this directory leaves out.

    Raises: as `pack`.
    """
    return _walk_workdir(root).notes()


@contextmanager
def pack(root: Path, *, max_bytes: int = MAX_BYTES) -> Iterator[Snapshot]:
    """Pack the directory into a snapshot.

    Raises: SpecInvalid if the directory cannot be read or a link points outside;
    TooLarge if it is larger than `max_bytes`.
    """
    walk = _walk_workdir(root)
    root = walk.root
    entries = sorted(walk.entries, key=lambda entry: entry.name)
    _check_size(root, entries, max_bytes)
    with tempfile.TemporaryFile(prefix="corral-workdir-") as file:
        with (
            gzip.GzipFile(
                filename="", fileobj=file, mode="wb", compresslevel=3, mtime=0
            ) as packed,
            tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as tar,
        ):
            for entry in entries:
                _add_tar_entry(tar, root, entry)
        size_bytes = file.tell()
        file.seek(0)
        digest = hashlib.file_digest(file, "sha256").hexdigest()
        yield Snapshot(
            sha256=digest, size_bytes=size_bytes, file=file, notes=walk.notes()
        )


def _walk_workdir(root: Path) -> _Walk:
    """Walk through the directory and collect its entries. It uses no recursion, because
    a tree may be deep."""
    root = root.expanduser().resolve()
    if not root.is_dir():
        raise SpecInvalid(
            f"workdir {root} is not a directory", hint=f"run: ls -ld {root}"
        )
    around = cluster_around(root)
    if around is not None:
        raise SpecInvalid(
            f"workdir {root} is inside {around}, the directory of a cluster, which contains keys "
            "and tokens and is never uploaded",
            hint="run the command in the directory of your project, or add: --workdir DIR",
        )
    walk, paths = _Walk(root), own_directories()
    todo: list[tuple[str, _Specs]] = [("", ())]
    while todo:
        folder, specs = todo.pop()
        current_dir = root / folder
        specs = (*specs, *_read_ignore_files(current_dir, folder))
        scanned = _scan_directory(current_dir)
        if folder and is_cluster(
            current_dir, {scanned_entry.name for scanned_entry in scanned}, paths
        ):
            walk.clusters.append(folder)
            walk.entries = [
                entry for entry in walk.entries if f"{entry.name}/" != folder
            ]
            continue
        for dir_entry in scanned:
            name = f"{folder}{dir_entry.name}"
            is_folder = dir_entry.is_dir(follow_symlinks=False)
            if dir_entry.name in NEVER or _is_ignored(specs, name + "/" * is_folder):
                continue
            state = _state_of(dir_entry)
            if state is None:
                continue
            if is_credential(
                name, Path(dir_entry.path), state.st_mode
            ) and not _is_let_in(specs, name + "/" * is_folder):
                walk.credentials.append(name + "/" * is_folder)
                continue
            if is_folder or stat.S_ISREG(state.st_mode) or stat.S_ISLNK(state.st_mode):
                walk.entries.append(
                    _Entry(name=name, path=Path(dir_entry.path), found=state)
                )
            if is_folder:
                todo.append((f"{name}/", specs))
    return walk


def _state_of(found: "os.DirEntry[str]") -> os.stat_result | None:
    """Return the stat result of an entry; None if the file no longer exists, for
    example because a running program deleted it during the walk."""
    try:
        return found.stat(follow_symlinks=False)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise _unreadable(Path(found.path), error) from None


def _scan_directory(folder: Path) -> list["os.DirEntry[str]"]:
    try:
        with os.scandir(folder) as entries:
            return list(entries)
    except OSError as error:
        raise _unreadable(folder, error) from None


def _unreadable(path: Path, error: OSError) -> SpecInvalid:
    reason = (error.strerror or str(error)).lower()
    return SpecInvalid(
        f"workdir: {path} cannot be read: {reason}",
        hint=f"make {path} readable, or list it in .corralignore",
    )


def _read_ignore_files(
    folder: Path, base: str
) -> Iterator[tuple[str, str, "GitIgnoreSpec"]]:
    from pathspec import GitIgnoreSpec

    for name in IGNORE_FILES:
        path = folder / name
        try:
            if path.is_file():
                lines = path.read_text(errors="replace").splitlines()
                yield base, name, GitIgnoreSpec.from_lines(lines)
        except OSError as error:
            raise _unreadable(path, error) from None
        except ValueError as error:
            raise SpecInvalid(
                f"{path}: {error}", hint="correct the pattern in this file"
            ) from None


def _is_ignored(specs: _Specs, name: str) -> bool:
    """Return whether the name is ignored. The last pattern that matches decides; the
    patterns of the deepest ignore file come last."""
    ignored = False
    for base, _, spec in specs:
        is_included = spec.check_file(name.removeprefix(base)).include
        ignored = ignored if is_included is None else is_included
    return ignored


def _is_let_in(specs: _Specs, name: str) -> bool:
    """Return whether a .corralignore includes the name by a `!` line, although it may
    hold credentials. A `!` line of a .gitignore does not count, because it only
    concerns git."""
    return any(
        file == LET_IN and spec.check_file(name.removeprefix(base)).include is False
        for base, file, spec in specs
    )


def _check_size(root: Path, entries: Sequence[_Entry], max_bytes: int) -> None:
    files = [entry for entry in entries if stat.S_ISREG(entry.found.st_mode)]
    total = sum(entry.found.st_size for entry in files)
    if total <= max_bytes and len(entries) <= MAX_FILES:
        return
    largest = sorted(files, key=lambda entry: -entry.found.st_size)[:3]
    largest_text = ", ".join(
        f"{entry.name} ({size_text(entry.found.st_size)})" for entry in largest
    )
    raise TooLarge(
        f"workdir {root} is too large: {size_text(total)} in {len(entries):,} files (limit: "
        f"{size_text(max_bytes)} in {MAX_FILES:,}). The largest files: {largest_text}",
        hint="exclude files that the job does not need, for example: "
        f"echo '{largest[0].name}' >> {root}/.corralignore"
        if largest
        else "list files that the job does not need in .corralignore",
    )


def _add_tar_entry(tar: tarfile.TarFile, root: Path, entry: _Entry) -> None:
    info = tarfile.TarInfo(entry.name)
    mode = entry.found.st_mode
    try:
        if stat.S_ISDIR(mode):
            info.type, info.mode = tarfile.DIRTYPE, 0o755
            tar.addfile(info)
        elif stat.S_ISLNK(mode):
            info.type, info.linkname = tarfile.SYMTYPE, _validate_link(root, entry)
            tar.addfile(info)
        else:
            info.size = entry.found.st_size
            info.mode = 0o755 if mode & 0o100 else 0o644
            with entry.path.open("rb") as file:
                tar.addfile(info, file)
    except UnicodeError:
        raise SpecInvalid(
            f"workdir: the file name {entry.name!r} is not valid UTF-8",
            hint="rename the file",
        ) from None
    except OSError as error:
        raise _unreadable(entry.path, error) from None


def _validate_link(root: Path, entry: _Entry) -> str:
    """Return the target of a link, which must be a relative path that stays inside the
    workdir.

    Raises: SpecInvalid for another target.
    """
    target = os.readlink(entry.path)
    resolved = os.path.normpath(entry.path.parent / target)
    if os.path.isabs(target) or not Path(resolved).is_relative_to(root):
        raise SpecInvalid(
            f"workdir: the link {entry.name} points outside of the workdir, to {target}",
            hint=f"run: echo '/{_left_out_with(root, entry)}' >> {root}/.corralignore",
        )
    return target


def _left_out_with(root: Path, entry: _Entry) -> str:
    """Return the path that is left out because of this entry. If the entry lies in a
    virtual environment, this is the whole environment, which is usable only as a whole
    and only on its machine. Otherwise it is the entry."""
    for above in entry.path.parents:
        if above == root:
            break
        if (above / "pyvenv.cfg").is_file():
            return f"{above.relative_to(root)}/"
    return entry.name
