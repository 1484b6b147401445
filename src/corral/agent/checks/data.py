"""Check of a data folder as this node sees it: which files it holds, and how fast this
node reads them."""

import hashlib
import os
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from corral.agent.checks.messages import BYTES_PER_SECOND, CheckFinding
from corral.agent.checks.rates import rate_text
from corral.domain.active_checks import CheckKind
from corral.domain.units import duration_text, size_text

MOST_FILES: Final = 2000  # looked at, the first by name
SMALL_BYTES: Final = 1024 * 1024
MOST_SMALL: Final = 400
CHUNK_BYTES: Final = 4 * 1024 * 1024
LIST_SECONDS: Final = 10.0
# begins the unit of what is the same where the same is seen
LISTING: Final = "listing "


@dataclass(frozen=True, slots=True)
class DataListing:
    """The first files of a folder, by name, with their sizes. `whole`: the listing is
    complete, with no further files in the folder. `closed`: number of subfolders that
    this user may not read."""

    files: tuple[tuple[str, int], ...]
    whole: bool
    closed: int = 0

    @property
    def digest(self) -> str:
        """Return a digest of the listing; nodes that see the same files have the same
        digest."""
        lines = "\n".join(f"{size} {name}" for name, size in self.files)
        return hashlib.sha256(lines.encode(errors="replace")).hexdigest()[:12]

    @property
    def says(self) -> str:
        count_prefix = "" if self.whole else "more than "
        size = size_text(sum(size for _, size in self.files))
        folders = f"{self.closed:,} folder{'s' * (self.closed > 1)}"
        closed = f", {folders} not readable" if self.closed else ""
        files = f"{count_prefix}{len(self.files):,} files, {size}"
        return f"{files}, hash of names and sizes {self.digest}{closed}"


def check_data(path: str, seconds: float) -> Iterator[CheckFinding]:
    """Measure how long it takes to list a directory, then the read speed of small
    files, then that of the largest file, and yield a finding for each. Nothing is
    written."""
    began = time.monotonic()
    try:
        listing = listed(path)
    except OSError as trouble:
        text = f"{path} cannot be read on this node: {trouble.strerror or trouble}"
        yield CheckFinding(kind=CheckKind.DATA, device=path, text=text, failed=True)
        return
    took = time.monotonic() - began
    text = f"{listing.says}, listed in {took:.2f} s"
    yield CheckFinding(
        kind=CheckKind.DATA,
        device=path,
        text=text if listing.files else "no files: it is empty, or not mounted here",
        failed=not listing.files,
        value=float(len(listing.files)),
        unit=f"{LISTING}{listing.digest}",
    )
    if not listing.files:
        return
    small = [name for name, size in listing.files if 0 < size <= SMALL_BYTES][
        :MOST_SMALL
    ]
    large = sorted(listing.files, key=lambda one: (-one[1], one[0]))
    if small:
        yield _measure_read_speed(path, "small files", small, seconds)
    if large[0][1] > SMALL_BYTES:
        yield _measure_read_speed(
            path, "large files", [name for name, _ in large[:8]], seconds
        )


def listed(path: str) -> DataListing:
    """List the files below `path`, folder by folder, each sorted by name. Stop at a
    maximum number of files or after a time limit. A subfolder that may not be read is
    only counted.

    Raises: OSError when the folder itself cannot be read.
    """
    files: list[tuple[str, int]] = []
    closed = 0
    folders = [""]
    deadline = time.monotonic() + LIST_SECONDS
    while folders and len(files) < MOST_FILES and time.monotonic() < deadline:
        folder = folders.pop(0)
        try:
            with os.scandir(os.path.join(path, folder)) as entries:
                dir_entries = sorted(entries, key=lambda one: one.name)
        except PermissionError:
            if not folder:
                raise
            closed += 1
            continue
        for entry in dir_entries:
            name = os.path.join(folder, entry.name)
            if entry.is_dir(follow_symlinks=False):
                folders.append(name)
            elif entry.is_file() and len(files) < MOST_FILES:
                files.append((name, entry.stat().st_size))
    return DataListing(
        tuple(files), whole=not folders and len(files) < MOST_FILES, closed=closed
    )


def _measure_read_speed(
    path: str, what: str, names: list[str], seconds: float
) -> CheckFinding:
    """Measure the speed in bytes/s at which one reader reads the files; `what` names
    them in the finding. The files are first dropped from this node's page cache, as far
    as it allows."""
    read_bytes = files = 0
    began = time.monotonic()
    try:
        for name in names:
            read_bytes += _read_until_deadline(
                os.path.join(path, name), began + seconds
            )
            files += 1
            if time.monotonic() - began >= seconds:
                break
    except OSError as trouble:
        text = f"{trouble.filename or path} cannot be read: {trouble.strerror}"
        return CheckFinding(
            kind=CheckKind.DATA, device=f"{path} {what}", text=text, failed=True
        )
    took = max(time.monotonic() - began, 1e-9)
    rate = read_bytes / took
    text = f"{rate_text(rate)}, {files / took:,.0f} files/s; 1 GB takes {duration_text(1e9 / rate)}"
    return CheckFinding(
        kind=CheckKind.DATA,
        device=f"{path} {what}",
        text=text,
        value=rate,
        unit=BYTES_PER_SECOND,
    )


def _read_until_deadline(file: str, deadline: float) -> int:
    with open(file, "rb", buffering=0) as source:
        os.posix_fadvise(source.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        read_bytes = 0
        while time.monotonic() < deadline and (chunk := source.read(CHUNK_BYTES)):
            read_bytes += len(chunk)
        return read_bytes
