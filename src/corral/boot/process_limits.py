"""Limits of the head's own process: open files for the connections of all agents, and
an allocator that returns free memory to the system."""

import ctypes
import resource
from collections.abc import Callable
from dataclasses import replace
from typing import Final

from corral.ingress.connections import ConnectionLimits
from corral.ports.log import HeadLogger

FILES_A_NODE: Final = 2  # its agent's connections: heartbeats and logs
FILES_BESIDE: Final = 200  # stores, logs that are written now, people's requests
# as corral service says: programs that close whatever could be open
MOST_FILES: Final = 65_536
# take long where a container's limit is a thousand million, and the agents started here
# inherit it
FEW_NODES: Final = 1_000  # a lower capacity is reported when the head starts
HINT: Final = (
    "raise this limit where the head is started: ulimit -Hn, or LimitNOFILE of its "
    "service"
)

# glibc's malloc/malloc.h. Its own threshold rises to the largest block that was ever
# given back: then whatever is large for a moment (a question to the foreteller: 10 MB
# with 1,000 nodes) is cut out of the heap, small things settle in the hole, and the
# next one makes the heap grow.
_TRIM_THRESHOLD: Final = -1
_MMAP_THRESHOLD: Final = -3
_ARENA_MAX: Final = -8
LARGE_BYTES: Final = 1 << 20  # blocks from this size on go back to the system at once
# at the heap's end; less is not given back, to be asked for again
SLACK_BYTES: Final = 8 << 20
GIVEN_BACK_SECONDS: Final = 60.0
ARENAS: Final = 2  # one for the loop; helper threads need no heap each

log = HeadLogger("corral.head")


def prepare() -> None:
    """Raise the open-file limit and set the allocator of this process, before anything
    is opened or built. A limit that the system does not allow to be changed stays as it
    is."""
    shape_heap()
    file_limit = raise_files()
    if file_limit < files_for(FEW_NODES):
        log.warning(
            "few_files", limit=file_limit, agents=agents_in(file_limit), hint=HINT
        )


def raise_files() -> int:
    """Raise the limit of open files to the hard limit, at most MOST_FILES, and return
    the limit from now on.

    A shell's usual soft limit of 1,024 is meant for programs that wait with select().
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    target_limit = (
        MOST_FILES if hard == resource.RLIM_INFINITY else min(hard, MOST_FILES)
    )
    if soft == resource.RLIM_INFINITY or soft >= target_limit:
        return soft if soft != resource.RLIM_INFINITY else MOST_FILES
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (target_limit, hard))
    except (ValueError, OSError):  # the system may have a bound of its own below
        return soft
    return target_limit


def files_for(nodes: int) -> int:
    return FILES_BESIDE + FILES_A_NODE * nodes


def agents_in(files: int) -> int:
    """Return how many agents a head can serve with this number of open files."""
    return max(0, files - FILES_BESIDE) // FILES_A_NODE


def too_few_files(nodes: int) -> str:
    """Return a warning if the open-file limit of this process is too low for the agents
    of this number of nodes; "" if it is sufficient."""
    file_limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if file_limit == resource.RLIM_INFINITY or files_for(nodes) <= file_limit:
        return ""
    return (
        f"the head may open only {file_limit} files, enough for the agents of "
        f"{agents_in(file_limit)} nodes, but the cluster has {nodes} nodes; {HINT}"
    )


def connection_limits() -> ConnectionLimits:
    """Return the connection limits of the head's server. Connections that have not
    authenticated use at most a quarter of its open files, so that agents can always
    connect."""
    file_limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    usual = ConnectionLimits()
    if file_limit == resource.RLIM_INFINITY:
        return usual
    total = min(usual.total, max(16, file_limit // 4))
    return replace(usual, total=total, per_address=min(usual.per_address, total // 2))


def shape_heap() -> bool:
    """Configure the C library's allocator. Return whether it accepted all settings."""
    mallopt = _of_libc("mallopt")
    if mallopt is None:
        return False
    heap_options = {
        _MMAP_THRESHOLD: LARGE_BYTES,
        _TRIM_THRESHOLD: SLACK_BYTES,
        _ARENA_MAX: ARENAS,
    }
    return all(
        [mallopt(parameter, value) == 1 for parameter, value in heap_options.items()]
    )


def give_back() -> bool:
    """Return the free pages within the heap to the system, and return whether any were
    released.

    Each read of a TLS connection takes 256 KB for a moment. Later allocations fill
    parts of the gaps between such blocks, so the heap does not shrink by itself.
    """
    trim = _of_libc("malloc_trim")
    return trim is not None and trim(0) == 1


def _of_libc(name: str) -> Callable[..., int] | None:
    """Return a function of the C library by name; None if the library does not have it
    (musl, macOS)."""
    try:
        libc_function: Callable[..., int] = getattr(ctypes.CDLL(None), name)
    except (OSError, AttributeError):
        return None
    return libc_function
