"""Stacks of the processes of an attempt as an agent sends them. The module needs nothing
that only heads load."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

import msgspec

from corral.domain.process_stacks import (
    MOST_FRAMES,
    MOST_LISTED,
    MOST_THREADS,
    ProcessStacks,
)

ANSWER_BYTES: Final = 3 * 1024**2  # of a node; the head refuses 4 MiB


def encode_stacks(processes: Sequence[ProcessStacks]) -> bytes:
    """Return the stacks in at most ANSWER_BYTES. If they need more, only main threads
    are in the answer, and if need be only their innermost calls."""
    answer = msgspec.json.encode(processes)
    frames = MOST_FRAMES
    while len(answer) > ANSWER_BYTES and frames:
        smaller = [_main_thread_of(process, frames) for process in processes]
        answer = msgspec.json.encode(smaller)
        frames //= 2
    return answer


def _main_thread_of(process: ProcessStacks, frames: int) -> ProcessStacks:
    thread = process.main_thread
    if thread is None:
        return replace(process, threads=())
    return replace(process, threads=(replace(thread, frames=thread.frames[:frames]),))


def decode_stacks(text: bytes) -> list[ProcessStacks]:
    """Decode what an agent has sent, within bounds.

    Raises: ValueError.
    """
    processes = msgspec.json.decode(text, type=list[ProcessStacks])
    for process in processes[:MOST_LISTED]:
        is_large = len(process.threads) > MOST_THREADS or any(
            len(thread.frames) > MOST_FRAMES for thread in process.threads
        )
        if is_large:
            raise ValueError(f"the stacks of process {process.pid} are too large")
    return processes[:MOST_LISTED]
