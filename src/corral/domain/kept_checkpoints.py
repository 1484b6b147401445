"""Recorded checkpoints of a job that are still on disk: older ones are pruned as newer
ones come."""

from collections.abc import Sequence

from corral.domain.attempt import Save


def kept_saves(saves: Sequence[Save], keep: int) -> tuple[Save, ...]:
    """Return the saves that verify and are not pruned, the newest first.

    The training library removes what is older than its newest `keep` recorded saves; a
    save of a later attempt is newer. A rank that ended before its last record came back
    has left more.
    """
    verified_saves = [save for save in saves if not save.quarantined]
    newest_first = sorted(
        verified_saves, key=lambda save: (save.attempt, save.step), reverse=True
    )
    return tuple(newest_first[: max(1, keep)])
