"""What ranks that failed have printed last: the head reads of it what they failed of."""

import os
import re
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Final

from corral.domain.attempt import Exit
from corral.domain.bounds import printed

TAIL_BYTES: Final = 4096
READ_BYTES: Final = 16384  # so much is looked at, for what is left of it without the frames of C++
MOST_RANKS: Final = 16  # of a node: beats stay small when a thousand ranks fail at once
_FRAMES: Final = re.compile(rb"^[^\n]{0,40}frame #\d+: [^\n]*\n", re.MULTILINE)  # of c10::Error


def tails_of(logs: Path, exits: Iterable[tuple[int, Exit]]) -> tuple[tuple[int, str], ...]:
    """Of those that failed first, in the order of their ranks."""
    failed = sorted((exit.at, rank) for rank, exit in exits if not exit.clean)
    found = [(rank, tail_of(logs / f"rank-{rank}.log")) for _, rank in failed[:MOST_RANKS]]
    return tuple(sorted((rank, tail) for rank, tail in found if tail))


def tail_of(file: Path) -> str:
    """The end of the file, and of the one before it where it has just been rotated; "" for none.
    Frames of C++ are left out: a watchdog of NCCL prints 9 KB of them behind what it tells."""
    tail = b""
    for one in (file, file.with_name(f"{file.name}.1")):
        if len(tail) < READ_BYTES:
            tail = _end_of(one, READ_BYTES - len(tail)) + tail
    return printed(_FRAMES.sub(b"", tail)[-TAIL_BYTES:].decode("utf-8", "replace"))


def _end_of(file: Path, size: int) -> bytes:
    with suppress(OSError), file.open("rb") as opened:
        opened.seek(max(0, opened.seek(0, os.SEEK_END) - size))
        return opened.read(size)
    return b""
