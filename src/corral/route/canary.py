"""Verdict on a canary: a new revision that gets a small share of the requests is judged
against the old one."""

from dataclasses import dataclass
from enum import StrEnum
from math import log
from typing import Final

from corral.domain.units import share_text
from corral.route.latency_counts import LatencyCounts
from corral.route.sequential_test import errors_evidence, slower_evidence

TESTS: Final = 3  # errors, time to first token, time between tokens
LEAST_REQUESTS: Final = 20  # before latencies are compared, and before it passes
LEAST_ERRORS: Final = 3
FAILED_STARTS: Final = 3  # in a row: a crash loop
LONGEST_TIMES: Final = 6.0  # the time of a canary, on a service with few requests
LAST_OUTPUT_CHARACTERS: Final = 200


class CanaryOutcome(StrEnum):
    """Outcome of a canary so far."""

    GOES_ON = "goes_on"
    PASSED = "passed"
    TURNED_BACK = "turned_back"


class CanaryCause(StrEnum):
    """Cause of a verdict."""

    TOO_EARLY = "too_early"
    TOO_FEW_REQUESTS = "too_few_requests"
    NOT_WORSE = "not_worse"
    CRASH_LOOP = "crash_loop"
    ERRORS = "errors"
    SLOWER_FIRST_TOKEN = "slower_first_token"
    SLOWER_TOKENS = "slower_tokens"


@dataclass(frozen=True, slots=True, kw_only=True)
class RevisionCounts:
    """Whole counts of one revision, since its share of the requests was last changed.

    Attributes:
        requests: requests that ended, errors included.
        errors: requests that ended with a status of 500 or above or a cut stream.
        ttft: times to first token.
        itl: times between tokens.
    """

    requests: int
    errors: int
    ttft: LatencyCounts
    itl: LatencyCounts

    def __post_init__(self) -> None:
        if not 0 <= self.errors <= self.requests:
            raise ValueError(f"{self.errors} errors of {self.requests} requests")


@dataclass(frozen=True, slots=True, kw_only=True)
class CanaryRules:
    """Rules of a canary.

    Attributes:
        seconds: time after which a revision that is not worse passes.
        false_alarm: highest probability that a revision that is not worse is turned back.
        error_margin: difference of the error shares that does not matter.
        slower_margin: relative difference of the mean latencies that does not matter.
    """

    seconds: float = 600.0
    false_alarm: float = 0.05
    error_margin: float = 0.005
    slower_margin: float = 0.1

    def __post_init__(self) -> None:
        if self.seconds <= 0 or not 0 < self.false_alarm < 1:
            raise ValueError(f"a canary needs time and a probability: {self}")
        if min(self.error_margin, self.slower_margin) < 0:
            raise ValueError(f"margins are not negative: {self}")


@dataclass(frozen=True, slots=True, kw_only=True)
class CanaryVerdict:
    """Verdict on a canary; a revision that was turned back stays so."""

    outcome: CanaryOutcome
    cause: CanaryCause
    reason: str


def judge_canary(
    old: RevisionCounts,
    new: RevisionCounts,
    rules: CanaryRules,
    *,
    elapsed_seconds: float,
    failed_starts: int = 0,
    last_output: str = "",
) -> CanaryVerdict:
    """Return whether the new revision is turned back, passes or is tried further.

    It is turned back when one of three sequential tests is sure that it errs more often,
    or takes longer to the first token or between tokens, and the difference is large
    enough to matter. `sequential_test.py` says why the tests may be read each second. The
    three share the probability of a false alarm equally (Bonferroni).

    Args:
        elapsed_seconds: time since the share of the requests was last changed.
        failed_starts: starts of new replicas in a row that failed.
        last_output: last output of such a start, for the reason.
    """
    if failed_starts >= FAILED_STARTS:
        return _turned_back(
            CanaryCause.CRASH_LOOP, _crash_reason(failed_starts, last_output)
        )
    if _errs_more(old, new, rules):
        return _turned_back(CanaryCause.ERRORS, _error_reason(old, new))
    if min(old.requests, new.requests) >= LEAST_REQUESTS:
        if _is_slower(old.ttft, new.ttft, old, new, rules):
            reason = _slow_reason("to the first token", old.ttft, new.ttft, new)
            return _turned_back(CanaryCause.SLOWER_FIRST_TOKEN, reason)
        if _is_slower(old.itl, new.itl, old, new, rules):
            reason = _slow_reason("between tokens", old.itl, new.itl, new)
            return _turned_back(CanaryCause.SLOWER_TOKENS, reason)
    return _not_worse(new, rules, elapsed_seconds)


def _not_worse(
    new: RevisionCounts, rules: CanaryRules, elapsed_seconds: float
) -> CanaryVerdict:
    if elapsed_seconds < rules.seconds:
        return CanaryVerdict(
            outcome=CanaryOutcome.GOES_ON,
            cause=CanaryCause.TOO_EARLY,
            reason=(
                f"The new revision is not worse after {new.requests} requests; it is "
                f"tried for another {rules.seconds - elapsed_seconds:.0f} s."
            ),
        )
    longest = LONGEST_TIMES * rules.seconds
    if new.requests < LEAST_REQUESTS and elapsed_seconds < longest:
        return CanaryVerdict(
            outcome=CanaryOutcome.GOES_ON,
            cause=CanaryCause.TOO_FEW_REQUESTS,
            reason=(
                f"The new revision had {new.requests} requests; it is tried until it had "
                f"{LEAST_REQUESTS}, or for another {longest - elapsed_seconds:.0f} s."
            ),
        )
    return CanaryVerdict(
        outcome=CanaryOutcome.PASSED,
        cause=CanaryCause.NOT_WORSE,
        reason=(
            f"The new revision is not worse after {new.requests} requests in "
            f"{elapsed_seconds:.0f} s."
        ),
    )


def _errs_more(old: RevisionCounts, new: RevisionCounts, rules: CanaryRules) -> bool:
    if new.errors < LEAST_ERRORS:
        return False
    if not old.requests:  # nothing to compare with: more than half must be errors
        return 2 * new.errors > new.requests
    difference = new.errors / new.requests - old.errors / old.requests
    if difference < rules.error_margin:
        return False
    evidence = errors_evidence(old.errors, old.requests, new.errors, new.requests)
    return evidence >= log(TESTS / rules.false_alarm)


def _is_slower(
    old: LatencyCounts,
    new: LatencyCounts,
    old_revision: RevisionCounts,
    new_revision: RevisionCounts,
    rules: CanaryRules,
) -> bool:
    if new.mean_seconds <= (1.0 + rules.slower_margin) * old.mean_seconds:
        return False
    evidence = slower_evidence(old, new, old_revision.requests, new_revision.requests)
    return evidence >= log(TESTS / rules.false_alarm)


def _turned_back(cause: CanaryCause, reason: str) -> CanaryVerdict:
    return CanaryVerdict(outcome=CanaryOutcome.TURNED_BACK, cause=cause, reason=reason)


def _crash_reason(failed_starts: int, last_output: str) -> str:
    text = f"{failed_starts} starts of the new revision in a row failed"
    output = " ".join(last_output.split())[-LAST_OUTPUT_CHARACTERS:]
    return f"{text}; the last output: {output}" if output else f"{text}."


def _error_reason(old: RevisionCounts, new: RevisionCounts) -> str:
    of_old = old.errors / old.requests if old.requests else 0.0
    of_new = new.errors / new.requests
    return (
        f"{new.errors} of {new.requests} requests to the new revision failed "
        f"({share_text(of_new, 1)}), and {share_text(of_old, 1)} of those to the old one."
    )


def _slow_reason(
    what: str, old: LatencyCounts, new: LatencyCounts, revision: RevisionCounts
) -> str:
    return (
        f"The mean time {what} is {1000 * new.mean_seconds:.0f} ms at the new revision "
        f"and {1000 * old.mean_seconds:.0f} ms at the old one, after "
        f"{revision.requests} requests."
    )
