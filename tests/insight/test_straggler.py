"""A rank that is slow beyond doubt is named, and in noise nobody is."""

import random
from itertools import pairwise
from math import exp
from statistics import median

from hypothesis import given
from hypothesis import strategies as st

from corral.domain.observed_state import Pace
from corral.insight.straggler import Look, Looks, Straggler, span_of, straggler_of


def looks(
    ranks: int,
    *,
    slow: dict[int, float] | None = None,
    noise: float = 0.05,
    count: int = 10,
    seed: int = 1,
    in_data: bool = False,
) -> list[Look]:
    """Each 4 s: steps of 100 ms, `noise` of which is chance, that all ranks end
    together."""
    chance = random.Random(seed)
    slow = slow or {}
    sums = {rank: [0.0, 0.0, 0.0] for rank in range(ranks)}
    found: list[Look] = [{rank: Pace(rank, 0, 0.0, 0.0, 0.0) for rank in range(ranks)}]
    for at in range(1, count):
        for _ in range(40):
            busy = {
                rank: 0.1 * slow.get(rank, 1.0) * (1 + noise * chance.gauss(0, 1))
                for rank in range(ranks)
            }
            step = max(busy.values())
            for rank, own in busy.items():
                data = own - 0.1 if in_data and own > 0.1 else 0.0
                sums[rank][0] += data
                sums[rank][1] += step - data
                sums[rank][2] += step - own
        found.append({rank: Pace(rank, 40 * at, *sums[rank]) for rank in range(ranks)})
    return found


def named(found: list[Look]) -> Straggler | None:
    spans = [
        span for span in (span_of(*two) for two in pairwise(found)) if span is not None
    ]
    return straggler_of(spans, found[0], found[-1])


@given(
    busy=st.lists(st.sampled_from([0.5, 1.0, 1.1, 2.0, 3.0]), min_size=2, max_size=9)
)
def test_each_rank_is_held_against_the_median_of_the_others(busy: list[float]) -> None:
    before = {rank: Pace(rank, 0, 0.0, 0.0, 0.0) for rank in range(len(busy))}
    after = {rank: Pace(rank, 10, 0.0, 10 * own, 0.0) for rank, own in enumerate(busy)}
    span = span_of(before, after)
    assert span is not None
    for rank, own in enumerate(busy):
        others = median(one for other, one in enumerate(busy) if other != rank)
        assert abs(exp(span.ratios[rank]) - own / others) < 1e-9
    kept = Looks(2)
    kept.add(after, 0.0)
    assert kept.first == after


def test_a_rank_that_is_ten_percent_slower_is_named_with_its_seconds() -> None:
    for ranks in (2, 4, 8):
        found = named(looks(ranks, slow={1: 1.1}))
        assert found is not None
        assert found.rank == 1
        assert 0.08 < found.slower < 0.12
        assert abs(found.seconds - 0.11) < 0.003
        assert not found.in_data


def test_a_rank_that_waits_for_its_data_is_said_to() -> None:
    found = named(looks(4, slow={2: 1.3}, in_data=True, noise=0.01))
    assert found is not None
    assert (found.rank, found.in_data) == (2, True)


def test_nobody_is_named_where_all_are_alike_or_much_is_chance() -> None:
    for seed in range(60):
        for ranks in (2, 3, 4, 8):
            assert named(looks(ranks, seed=seed)) is None
            assert named(looks(ranks, seed=seed, noise=0.3)) is None


def test_nobody_is_named_before_there_are_looks_enough_or_where_a_third_is_slow() -> (
    None
):
    whole = looks(4, slow={0: 1.2})
    assert named(whole[:4]) is None
    assert named(whole[:5]) is not None
    assert named(looks(6, slow={0: 1.2, 1: 1.2, 2: 1.2})) is None


def test_one_rank_alone_and_ranks_that_do_not_step_say_nothing() -> None:
    assert named(looks(1)) is None
    still = [looks(4, slow={0: 1.5})[3]] * 8
    assert named(still) is None


def test_a_hiccup_of_one_look_is_no_straggler() -> None:
    whole = looks(4)
    late = {rank: pace for rank, pace in whole[5].items()}
    late[1] = late[1]._replace(wait_seconds=late[1].wait_seconds - 4.0)
    assert named([*whole[:5], late, *whole[6:]]) is None


def test_looks_are_kept_as_they_were_the_oldest_going_first() -> None:
    some = Looks(3)
    assert len(some) == 0
    for number in range(1, 6):
        some.add(a_look(number, ranks=2), save_seconds=10.0 * number)
        assert len(some) == min(number, 3)
        assert some.first == a_look(max(1, number - 2), ranks=2)
    assert some.save_seconds == 20.0
    some.add(a_look(6, ranks=3), save_seconds=70.0)
    assert len(some) == 1
    assert some.first == a_look(6, ranks=3)
    assert some.save_seconds == 0.0


def a_look(number: int, *, ranks: int) -> Look:
    return {
        rank: Pace(rank, number, 0.1 * number + rank, 0.2 * number, 0.3)
        for rank in range(ranks)
    }
