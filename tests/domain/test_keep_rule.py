"""The rule of saves that stay on disk, by its properties."""

import math
from dataclasses import dataclass

from hypothesis import given
from hypothesis import strategies as some

from corral.domain.keep_rule import (
    BestRule,
    Goal,
    KeepReason,
    KeepRule,
    Metrics,
    SaveKey,
    reasons_to_keep,
    save_key,
)

DAY = 86_400.0


@dataclass(frozen=True)
class Made:
    attempt: int
    step: int
    at: float = 0.0
    metrics: Metrics = ()
    pinned: bool = False


def with_loss(step: int, loss: float) -> Made:
    return Made(1, step, metrics=(("loss", loss),))


def kept(saves: list[Made], rule: KeepRule) -> set[SaveKey]:
    return set(reasons_to_keep(saves, rule))


VALUES = some.sampled_from([0.0, 0.5, 0.5, 1.0, 2.0, math.nan, math.inf, -math.inf])
METRICS = some.dictionaries(some.sampled_from(["loss", "accuracy"]), VALUES).map(
    lambda values: tuple(values.items())
)
# the clock may step back, and repeat
MADE = some.builds(
    Made,
    attempt=some.integers(1, 3),
    step=some.integers(0, 30),
    at=some.floats(0, 20 * DAY),
    metrics=METRICS,
    pinned=some.booleans(),
)
SAVES = some.lists(MADE, max_size=25, unique_by=save_key)
BEST = some.builds(
    BestRule,
    metric=some.sampled_from(["loss", "accuracy", "never"]),
    count=some.integers(1, 4),
    goal=some.sampled_from(Goal),
)
RULES = some.builds(
    KeepRule,
    last=some.integers(0, 5),
    every_seconds=some.none() | some.sampled_from([1.0, DAY]),
    best=some.none() | BEST,
)


@given(saves=SAVES, rule=RULES)
def test_the_newest_and_the_pinned_saves_always_stay(
    saves: list[Made], rule: KeepRule
) -> None:
    reasons = reasons_to_keep(saves, rule)
    if saves:
        newest = sorted(map(save_key, saves))[-max(1, rule.last) :]
        last = [key for key in reasons if KeepReason.LAST in reasons[key]]
        assert sorted(last) == newest
    pinned = {save_key(save) for save in saves if save.pinned}
    assert pinned == {key for key in reasons if KeepReason.PINNED in reasons[key]}
    assert reasons.keys() <= {save_key(save) for save in saves}
    assert all(reasons.values()), "each stays for a reason"


@given(saves=SAVES, rule=RULES, chance=some.randoms())
def test_the_order_of_the_list_does_not_matter(
    saves: list[Made], rule: KeepRule, chance: object
) -> None:
    shuffled = list(saves)
    chance.shuffle(shuffled)  # type: ignore[attr-defined]
    assert reasons_to_keep(shuffled, rule) == reasons_to_keep(saves, rule)


@given(saves=SAVES, rule=RULES)
def test_removing_after_each_save_ends_as_removing_once(
    saves: list[Made], rule: KeepRule
) -> None:
    """The head decides over all records, the library over what it has left on disk."""
    on_disk: list[Made] = []
    for save in sorted(saves, key=save_key):
        on_disk.append(save)
        stay = kept(on_disk, rule)
        on_disk = [old for old in on_disk if save_key(old) in stay]
    assert {save_key(save) for save in on_disk} == kept(saves, rule)


@given(saves=SAVES, rule=RULES)
def test_the_best_are_finite_and_none_that_goes_is_better(
    saves: list[Made], rule: KeepRule
) -> None:
    if rule.best is None:
        return
    best, values = rule.best, {save_key(s): dict(s.metrics) for s in saves}
    reasons = reasons_to_keep(saves, rule)
    finite = {
        key: logged[best.metric]
        for key, logged in values.items()
        if math.isfinite(logged.get(best.metric, math.nan))
    }
    chosen = {key for key in reasons if KeepReason.BEST in reasons[key]}
    assert chosen <= finite.keys()
    assert len(chosen) == min(best.count, len(finite))
    for key in finite.keys() - chosen:
        for better in chosen:
            if best.goal == Goal.MIN:
                assert finite[better] <= finite[key]
            else:
                assert finite[better] >= finite[key]


def test_the_largest_are_the_best_where_the_goal_says_so() -> None:
    saves = [with_loss(step, loss) for step, loss in ((10, 3.0), (20, 1.0), (30, 2.0))]
    for goal, best in ((Goal.MIN, 20), (Goal.MAX, 10)):
        rule = KeepRule(last=1, best=BestRule(metric="loss", goal=goal))
        assert kept(saves, rule) == {(1, best), (1, 30)}


def test_of_equal_metrics_the_oldest_stay() -> None:
    saves = [with_loss(step, 0.5) for step in (10, 20, 30, 40)]
    rule = KeepRule(last=1, best=BestRule(metric="loss", count=2))
    assert reasons_to_keep(saves, rule) == {
        (1, 10): (KeepReason.BEST,),
        (1, 20): (KeepReason.BEST,),
        (1, 40): (KeepReason.LAST,),
    }


def test_the_first_save_of_each_period_stays() -> None:
    hours = [0, 1, 23, 24, 30, 47, 49]
    saves = [Made(1, step, at=hour * 3600.0) for step, hour in enumerate(hours)]
    assert kept(saves, KeepRule(last=1, every_seconds=DAY)) == {(1, 0), (1, 3), (1, 6)}


def test_a_clock_that_steps_back_removes_nothing_newer() -> None:
    """Age is the order of attempts and steps."""
    saves = [Made(1, 10, at=5 * DAY), Made(1, 20, at=DAY), Made(2, 5, at=DAY + 1)]
    assert kept(saves, KeepRule(last=1)) == {(2, 5)}
    assert kept(saves, KeepRule(last=1, every_seconds=DAY)) == {
        (1, 10),
        (1, 20),
        (2, 5),
    }
