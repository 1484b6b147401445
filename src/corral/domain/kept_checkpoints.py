"""Recorded checkpoints of a job that are still on disk. Older checkpoints are pruned as
newer ones are recorded."""

from collections.abc import Sequence

from corral.domain.attempt import Save


def kept_saves(saves: Sequence[Save], keep: int) -> tuple[Save, ...]:
    """Return the saves that verify and are not pruned, the newest first.

    The training library removes saves that are older than its newest `keep` recorded
    ones. A save of a later attempt counts as newer. More saves may be left on disk if a
    rank ended before its last save was acknowledged.
    """
    verified_saves = [save for save in saves if not save.quarantined]
    newest_first = sorted(
        verified_saves, key=lambda save: (save.attempt, save.step), reverse=True
    )
    return tuple(newest_first[: max(1, keep)])
