"""What ranks that failed have printed last: the head reads of it what they failed of."""

import os
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Final

from corral.domain.attempt import Exit

TAIL_BYTES: Final = 4096
MOST_RANKS: Final = 16  # of a node: beats stay small when a thousand ranks fail at once


def tails_of(logs: Path, exits: Iterable[tuple[int, Exit]]) -> tuple[tuple[int, str], ...]:
    """Of the first ranks that failed, in the order of their ends."""
    failed = sorted((exit.at, rank) for rank, exit in exits if not exit.clean)
    found = [(rank, tail_of(logs / f"rank-{rank}.log")) for _, rank in failed[:MOST_RANKS]]
    return tuple(sorted((rank, tail) for rank, tail in found if tail))


def tail_of(file: Path) -> str:
    """The end of the file, and of the one before it where it has just been rotated; "" for none."""
    tail = b""
    for one in (file, file.with_name(f"{file.name}.1")):
        if len(tail) < TAIL_BYTES:
            tail = _end_of(one, TAIL_BYTES - len(tail)) + tail
    return tail.decode("utf-8", "replace")


def _end_of(file: Path, size: int) -> bytes:
    with suppress(OSError), file.open("rb") as opened:
        opened.seek(max(0, opened.seek(0, os.SEEK_END) - size))
        return opened.read(size)
    return b""
