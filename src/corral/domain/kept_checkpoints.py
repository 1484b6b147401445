"""Recorded checkpoints of a job that are still on disk. Older checkpoints are pruned as
newer ones are recorded."""

from collections.abc import Sequence

from corral.domain.attempt import Save
from corral.domain.job import CheckpointRule
from corral.domain.keep_rule import (
    KeepReason,
    KeepRule,
    SaveKey,
    reasons_to_keep,
    save_key,
)


def rule_of(checkpoint: CheckpointRule | None) -> KeepRule:
    """Return the rule by which a job's saves are kept."""
    return checkpoint.keep_rule if checkpoint is not None else KeepRule(last=1)


def keep_reasons(
    saves: Sequence[Save], rule: KeepRule
) -> dict[SaveKey, tuple[KeepReason, ...]]:
    """Return the saves that stay on disk, each with its reasons. Quarantined and
    retired saves are absent."""
    return reasons_to_keep((save for save in saves if save.is_usable), rule)


def kept_saves(saves: Sequence[Save], rule: KeepRule) -> tuple[Save, ...]:
    """Return the saves that verify and are not pruned, the newest first.

    The training library applies the same rule. More saves may be left on disk if a rank
    ended before its last save was acknowledged.
    """
    kept_keys = keep_reasons(saves, rule)
    on_disk = [save for save in saves if save.is_usable and save_key(save) in kept_keys]
    return tuple(sorted(on_disk, key=save_key, reverse=True))


def unlogged_metric(saves: Sequence[Save], rule: KeepRule) -> str:
    """Return the metric by which the best saves are to be kept, if no usable save has a
    value of it; else ""."""
    usable = [save for save in saves if save.is_usable]
    if rule.best is None or not usable:
        return ""
    name = rule.best.metric
    return "" if any(name in dict(save.metrics) for save in usable) else name
