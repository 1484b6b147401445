"""Evidence of stalls, in the folder of the attempt next to its logs: the stacks of all
ranks, their states and counters, and their last collective operations."""

import shutil
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

import msgspec

from corral.agent.watching.rank_reports import RankReport
from corral.agent.watching.rank_samples import RankSample
from corral.domain.hang import NodeHang
from corral.wire.stack_frames import encode_stacks

EVIDENCE_FOLDER: Final = "hang"
MOST_STALLS: Final = 4  # of an attempt; older ones are removed


def save_evidence(
    attempt_folder: Path,
    *,
    stall: int,
    hang: NodeHang,
    samples: Sequence[RankSample],
    reports: Mapping[int, RankReport],
    at: float,
) -> None:
    """Write what was observed. A later round of the same stall replaces the files of an
    earlier one. Without room on the disk, nothing is kept.

    Args:
        stall: Number of the stall within the attempt.
        at: Wall clock.
    """
    with suppress(OSError):
        folder = attempt_folder / EVIDENCE_FOLDER / str(stall)
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        # of a node at most 3 MiB each, so less than 2 MiB a rank
        _write(folder / "stacks-1.json", encode_stacks(samples[0].stacks))
        _write(folder / "stacks-2.json", encode_stacks(samples[-1].stacks))
        ranks = {
            "at": at,
            "hang": hang,
            "counters": [
                {str(pid): sample.counters[pid] for pid in sorted(sample.counters)}
                for sample in (samples[0], samples[-1])
            ],
            "collectives": {
                str(rank): reports[rank].collectives for rank in sorted(reports)
            },
        }
        _write(folder / "ranks.json", msgspec.json.encode(ranks))
        _remove_old(folder.parent, stall - MOST_STALLS)


def _write(file: Path, content: bytes) -> None:
    """Write a file in one step, so that no reader sees a part of it."""
    new_file = file.with_suffix(".new")
    new_file.write_bytes(content)
    new_file.rename(file)


def _remove_old(folder: Path, newest_removed: int) -> None:
    for entry in folder.iterdir():
        if entry.name.isdecimal() and int(entry.name) <= newest_removed:
            shutil.rmtree(entry, ignore_errors=True)
