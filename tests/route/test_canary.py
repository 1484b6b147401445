"""Rules of the verdict on a canary, and of the tests that it rests on."""

from dataclasses import replace
from math import exp, log
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from corral.route.canary import (
    CanaryCause,
    CanaryOutcome,
    CanaryRules,
    CanaryVerdict,
    RevisionCounts,
    judge_canary,
)
from corral.route.latency_counts import LatencyCounts, count_latencies
from corral.route.sequential_test import errors_evidence, slower_evidence

TTFT_BOUNDS = (0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 10.0)
ITL_BOUNDS = (0.01, 0.025, 0.05, 0.075, 0.1, 0.5)
RULES = CanaryRules()
NONE = RevisionCounts(
    requests=0,
    errors=0,
    ttft=count_latencies(TTFT_BOUNDS, []),
    itl=count_latencies(ITL_BOUNDS, []),
)


def revision(
    requests: int,
    errors: int = 0,
    *,
    ttft: float = 0.2,
    itl: float = 0.02,
    spread: float = 0.5,
    seed: int = 1,
) -> RevisionCounts:
    """Return the counts of a revision with log-normal latencies of these medians."""
    chance = Random(seed)
    answered = requests - errors
    ttfts = [ttft * exp(chance.gauss(0, spread)) for _ in range(answered)]
    gaps = [itl * exp(chance.gauss(0, spread)) for _ in range(answered)]
    return RevisionCounts(
        requests=requests,
        errors=errors,
        ttft=count_latencies(TTFT_BOUNDS, ttfts),
        itl=count_latencies(ITL_BOUNDS, gaps * 10),
    )


OLD = revision(11_400, seed=2)


def judge(
    old: RevisionCounts, new: RevisionCounts, elapsed_seconds: float = 300.0
) -> CanaryVerdict:
    return judge_canary(old, new, RULES, elapsed_seconds=elapsed_seconds)


@pytest.mark.parametrize(
    ("new", "cause"),
    [
        (revision(500, errors=10), CanaryCause.ERRORS),
        (revision(500, ttft=0.27), CanaryCause.SLOWER_FIRST_TOKEN),
        (revision(500, itl=0.027), CanaryCause.SLOWER_TOKENS),
    ],
)
def test_a_worse_revision_is_turned_back_with_the_cause(
    new: RevisionCounts, cause: CanaryCause
) -> None:
    verdict = judge(OLD, new)
    assert (verdict.outcome, verdict.cause) == (CanaryOutcome.TURNED_BACK, cause)


@pytest.mark.parametrize(
    "new",
    [
        revision(500),
        revision(500, ttft=0.206, itl=0.0206),  # 3 % slower
        revision(500, ttft=0.1, itl=0.01),
        revision(500, errors=2),
        NONE,
    ],
)
def test_a_revision_that_is_not_worse_goes_on_and_passes(new: RevisionCounts) -> None:
    assert judge(OLD, new).outcome is CanaryOutcome.GOES_ON
    assert judge(OLD, new, 3600.0).outcome is CanaryOutcome.PASSED


def test_errors_that_both_make_turn_nothing_back() -> None:
    old = revision(11_400, errors=228)
    assert judge(old, revision(500, errors=10)).outcome is CanaryOutcome.GOES_ON


def test_a_quarter_of_errors_is_turned_back_after_few_requests() -> None:
    old = revision(190)
    assert judge(old, revision(10, errors=3)).cause is CanaryCause.ERRORS


def test_without_old_requests_only_a_majority_of_errors_counts() -> None:
    assert judge(NONE, revision(9, errors=5)).cause is CanaryCause.ERRORS
    assert judge(NONE, revision(9, errors=4)).outcome is CanaryOutcome.GOES_ON


def test_a_certain_but_small_difference_turns_nothing_back() -> None:
    old = revision(10_000, seed=3)
    many = LatencyCounts(
        bounds=old.itl.bounds,
        counts=tuple(100 * count for count in old.itl.counts),
        seconds=100 * old.itl.seconds,
    )
    new_counts = list(many.counts)
    moved = new_counts[1] // 10
    new_counts[1] -= moved
    new_counts[2] += moved
    new = LatencyCounts(
        bounds=many.bounds, counts=tuple(new_counts), seconds=1.02 * many.seconds
    )
    assert slower_evidence(many, new, 10**6, 10**6) > log(1000)
    verdict = judge(
        RevisionCounts(requests=10**6, errors=0, ttft=NONE.ttft, itl=many),
        RevisionCounts(requests=10**6, errors=0, ttft=NONE.ttft, itl=new),
    )
    assert verdict.outcome is CanaryOutcome.GOES_ON


def test_a_few_errors_of_very_many_requests_turn_nothing_back() -> None:
    old = replace(OLD, requests=2_000_000, errors=200)
    new = replace(OLD, requests=100_000, errors=300)
    assert errors_evidence(200, 2_000_000, 300, 100_000) > log(1000)
    assert judge(old, new).outcome is CanaryOutcome.GOES_ON


def test_a_shift_within_one_bucket_is_seen_by_the_means() -> None:
    old = revision(11_400, ttft=0.3, itl=0.03, spread=0.03)
    new = revision(500, ttft=0.39, itl=0.03, spread=0.03)
    assert old.ttft.counts.count(0) == len(old.ttft.counts) - 1
    assert judge(old, new).cause is CanaryCause.SLOWER_FIRST_TOKEN


def test_a_few_endless_answers_are_no_evidence_of_slowness() -> None:
    slow = list(revision(500).ttft.counts)
    slow[-1] += 3
    ttft = LatencyCounts(bounds=TTFT_BOUNDS, counts=tuple(slow), seconds=5000.0)
    new = revision(500)
    new = RevisionCounts(requests=503, errors=0, ttft=ttft, itl=new.itl)
    assert new.ttft.mean_seconds > 10 * OLD.ttft.mean_seconds
    assert judge(OLD, new).outcome is CanaryOutcome.GOES_ON


def test_the_gaps_of_one_stream_are_one_latency() -> None:
    old = revision(400, seed=4).itl
    new = revision(25, itl=0.025, seed=5).itl
    evidence = slower_evidence(old, new, 400, 25)
    longer = slower_evidence(longer_streams(old), longer_streams(new), 400, 25)
    assert longer == pytest.approx(evidence)
    assert slower_evidence(longer_streams(old), new, 400, 25) == pytest.approx(evidence)


def longer_streams(gaps: LatencyCounts) -> LatencyCounts:
    return LatencyCounts(
        bounds=gaps.bounds,
        counts=tuple(1000 * count for count in gaps.counts),
        seconds=1000 * gaps.seconds,
    )


@pytest.mark.parametrize("elapsed_seconds", [0.0, 10_000.0])
def test_a_crash_loop_turns_back_at_once_with_the_last_output(
    elapsed_seconds: float,
) -> None:
    verdict = judge_canary(
        NONE,
        NONE,
        RULES,
        elapsed_seconds=elapsed_seconds,
        failed_starts=3,
        last_output="Traceback\n  KeyError: 'rope'\n",
    )
    assert verdict.cause is CanaryCause.CRASH_LOOP
    assert verdict.outcome is CanaryOutcome.TURNED_BACK
    assert verdict.reason.endswith("the last output: Traceback KeyError: 'rope'")
    one = judge_canary(NONE, NONE, RULES, elapsed_seconds=0.0, failed_starts=2)
    assert one.outcome is CanaryOutcome.GOES_ON


def test_a_quiet_service_gets_more_time_but_not_for_ever() -> None:
    few = revision(5)
    assert judge(OLD, few, 601.0).cause is CanaryCause.TOO_FEW_REQUESTS
    assert judge(OLD, few, 3600.0).outcome is CanaryOutcome.PASSED


def test_a_reason_says_what_was_seen() -> None:
    assert judge(OLD, revision(500, errors=10)).reason == (
        "10 of 500 requests to the new revision failed (2.0 %), and 0.0 % of those to the "
        "old one."
    )


@given(
    old=st.tuples(st.integers(0, 10**6), st.integers(0, 10**6)),
    new=st.tuples(st.integers(0, 10**6), st.integers(0, 10**6)),
)
def test_more_errors_of_the_new_revision_are_never_less_evidence(
    old: tuple[int, int], new: tuple[int, int]
) -> None:
    requests = max(old)
    of_new = max(new)
    less = errors_evidence(min(old), requests, min(new), of_new)
    more = errors_evidence(min(old), requests, min(new) + 1, of_new)
    assert more >= less


counts = st.lists(st.integers(0, 1000), min_size=7, max_size=7)


@given(old=counts, new=counts, requests=st.integers(0, 10**6))
def test_any_counts_have_a_verdict(
    old: list[int], new: list[int], requests: int
) -> None:
    both = [
        RevisionCounts(
            requests=requests,
            errors=0,
            ttft=NONE.ttft,
            itl=LatencyCounts(
                bounds=ITL_BOUNDS, counts=tuple(each), seconds=0.02 * sum(each)
            ),
        )
        for each in (old, new)
    ]
    assert judge(both[0], both[1]).reason.endswith(".")


def test_evidence_of_equal_revisions_seldom_grows_however_often_it_is_read() -> None:
    crossings = sum(
        max(errors_of(Random(run), 0.02, 0.02)) >= log(20) for run in range(100)
    )
    assert crossings <= 5


def test_evidence_of_a_revision_that_errs_grows_in_nearly_all_runs() -> None:
    crossings = sum(
        max(errors_of(Random(run), 0.0, 0.02)) >= log(60) for run in range(100)
    )
    assert crossings >= 95


def errors_of(chance: Random, old_share: float, new_share: float) -> list[float]:
    """Return the evidence after each of 600 seconds of 20 requests."""
    old = 0
    new = 0
    evidence = []
    for second in range(1, 601):
        old += sum(chance.random() < old_share for _ in range(19))
        new += chance.random() < new_share
        evidence.append(errors_evidence(old, 19 * second, new, second))
    return evidence


def test_histograms_with_other_bounds_are_refused() -> None:
    with pytest.raises(ValueError, match="different bounds"):
        slower_evidence(OLD.ttft, OLD.itl, 10, 10)
    with pytest.raises(ValueError, match="errors of"):
        RevisionCounts(requests=1, errors=2, ttft=NONE.ttft, itl=NONE.itl)
    with pytest.raises(ValueError, match="probability"):
        CanaryRules(false_alarm=1.0)
    with pytest.raises(ValueError, match="margins"):
        CanaryRules(error_margin=-0.1)
