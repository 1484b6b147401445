"""Rule that decides which saves of a job stay on disk, and why. The head and the training
library apply it to the same saves, and so agree without a message."""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, Protocol

from corral.domain.ids import AttemptNumber

SaveKey = tuple[int, int]  # (attempt, step): saves of a newer attempt are newer
Metrics = tuple[tuple[str, float], ...]
DEFAULT_LAST: Final = 3


class KeepReason(StrEnum):
    """Reason for which a save stays on disk."""

    LAST = "last"
    EVERY = "every"
    BEST = "best"
    PINNED = "pinned"


class Goal(StrEnum):
    """Whether the smallest or the largest value of a metric is the best."""

    MIN = "min"
    MAX = "max"


@dataclass(frozen=True, slots=True, kw_only=True)
class BestRule:
    """Keep the `count` saves with the best values of this metric."""

    metric: str
    count: int = 1
    goal: Goal = Goal.MIN


@dataclass(frozen=True, slots=True, kw_only=True)
class KeepRule:
    """Keep the newest `last` saves, the first save of each period of `every_seconds`, and
    the best saves by a metric. A pinned save always stays."""

    last: int = DEFAULT_LAST
    every_seconds: float | None = None
    best: BestRule | None = None


class KeptSave(Protocol):
    """A save to which the rule is applied. `at` is the wall clock of the save."""

    @property
    def attempt(self) -> AttemptNumber | int: ...

    @property
    def step(self) -> int: ...

    @property
    def at(self) -> float: ...

    @property
    def metrics(self) -> Metrics: ...

    @property
    def pinned(self) -> bool: ...


def reasons_to_keep(
    saves: Iterable[KeptSave], rule: KeepRule
) -> dict[SaveKey, tuple[KeepReason, ...]]:
    """Return the saves that stay, each with its reasons. A save that is absent from the
    result is removed.

    The newest save always stays. Once a save is removed, it would not stay either if the
    rule were applied later to all saves. Age is the order of attempts and steps, never
    the clock, so a clock that steps back removes nothing newer.

    Args:
        saves: complete saves of one job that verify, in any order.
    """
    oldest_first = sorted(saves, key=save_key)
    newest = oldest_first[-max(1, rule.last) :]
    reasons_by_save: dict[SaveKey, list[KeepReason]] = {}
    for reason, chosen in (
        (KeepReason.LAST, newest),
        (KeepReason.EVERY, _first_of_periods(oldest_first, rule.every_seconds)),
        (KeepReason.BEST, _best(oldest_first, rule.best)),
        (KeepReason.PINNED, [save for save in oldest_first if save.pinned]),
    ):
        for save in chosen:
            reasons_by_save.setdefault(save_key(save), []).append(reason)
    return {key: tuple(reasons) for key, reasons in reasons_by_save.items()}


def save_key(save: KeptSave) -> SaveKey:
    """Return the key by which saves sort by age."""
    return (save.attempt, save.step)


def metric_of(save: KeptSave, name: str) -> float | None:
    """Return the value of the metric at the save; None if it was not logged, or is not
    a finite number."""
    value = dict(save.metrics).get(name)
    return value if value is not None and math.isfinite(value) else None


def _first_of_periods(
    oldest_first: Iterable[KeptSave], seconds: float | None
) -> list[KeptSave]:
    """Return the oldest save of each period. The first one stays, not the last one,
    because newer saves of the same period then change nothing."""
    if seconds is None:
        return []
    firsts: dict[int, KeptSave] = {}
    for save in oldest_first:
        firsts.setdefault(math.floor(save.at / seconds), save)
    return list(firsts.values())


def _best(oldest_first: Iterable[KeptSave], rule: BestRule | None) -> list[KeptSave]:
    """Return the best saves by the metric. Of equal ones, the oldest stay."""
    if rule is None:
        return []
    sign = 1.0 if rule.goal == Goal.MIN else -1.0
    ranked = sorted(
        (sign * value, save_key(save), save)
        for save in oldest_first
        if (value := metric_of(save, rule.metric)) is not None
    )
    return [save for _, _, save in ranked[: rule.count]]
