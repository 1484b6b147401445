"""Canaries of simulated revisions, judged each second in virtual time.

Requests arrive by chance at 20 a second, and each goes to the new revision with a chance of
5 %. Latencies are counted in the buckets of the gateway. A canary ends after 600 s, or with
the first verdict that turns the new revision back.

Run: .venv/bin/python benchmarks/gateway/canary.py [--canaries 200] [--write FILE]
"""

import argparse
import os
import platform
import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from math import ceil
from pathlib import Path
from typing import Final

import numpy as np

from corral.gateway.counting.latency_histogram import ITL_BOUNDS, TTFT_BOUNDS
from corral.route.canary import (
    CanaryOutcome,
    CanaryRules,
    RevisionCounts,
    judge_canary,
)
from corral.route.latency_counts import LatencyCounts

SECONDS: Final = 600
REQUESTS_PER_SECOND: Final = 20.0
SHARE: Final = 0.05
MEAN_TOKENS: Final = 60.0
RULES: Final = CanaryRules(seconds=float(SECONDS))
WAVE_SECONDS: Final = 120.0

Array = np.ndarray


@dataclass(frozen=True, slots=True, kw_only=True)
class Behaviour:
    """How one revision answers.

    `ttft` and `itl` are medians in seconds; the spreads are standard deviations of their
    logarithms: of one request, of the gaps of one stream, and between streams.
    """

    errors: float = 0.0
    ttft: float = 0.2
    ttft_spread: float = 0.8
    itl: float = 0.02
    gap_spread: float = 0.2
    stream_spread: float = 0.3
    wave: float = 0.0  # growth of all latencies at the crest of the load
    replica_seconds: float = 0.0  # of a replica's queue, for each request


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """Kind of canary. `goal`: how many must or may be turned back, as text."""

    name: str
    old: Behaviour
    new: Behaviour
    goal: str
    share: float = SHARE
    rate: float = REQUESTS_PER_SECOND
    old_replicas: int = 19


@dataclass(frozen=True, slots=True)
class Answers:
    """Answers of one revision, with the counts of each second."""

    requests: Array
    errors: Array
    ttft: Array  # seconds x buckets
    ttft_seconds: Array
    itl: Array
    itl_seconds: Array

    def until(self, second: int) -> RevisionCounts:
        return RevisionCounts(
            requests=int(self.requests[second]),
            errors=int(self.errors[second]),
            ttft=_counts(TTFT_BOUNDS, self.ttft[second], self.ttft_seconds[second]),
            itl=_counts(ITL_BOUNDS, self.itl[second], self.itl_seconds[second]),
        )


def _counts(bounds: tuple[float, ...], counts: Array, seconds: float) -> LatencyCounts:
    return LatencyCounts(
        bounds=bounds, counts=tuple(counts.tolist()), seconds=float(seconds)
    )


def answers(
    behaviour: Behaviour, rate: float, replicas: int, chance: np.random.Generator
) -> Answers:
    """Return what a revision answers within the canary, as whole counts."""
    size = chance.poisson(rate * SECONDS)
    arrivals = np.sort(chance.uniform(0, SECONDS, size))
    wave = 1.0 + behaviour.wave * (1 + np.sin(2 * np.pi * arrivals / WAVE_SECONDS)) / 2
    ttft = behaviour.ttft * wave * np.exp(chance.normal(0, behaviour.ttft_spread, size))
    if behaviour.replica_seconds:
        ttft += waits(arrivals, behaviour.replica_seconds * wave, replicas, chance)
    failed = chance.random(size) < behaviour.errors
    tokens = np.where(failed, 0, chance.geometric(1 / MEAN_TOKENS, size))
    of_stream = (
        behaviour.itl * wave * np.exp(chance.normal(0, behaviour.stream_spread, size))
    )
    gaps = np.repeat(of_stream, tokens)
    gaps = gaps * np.exp(chance.normal(0, behaviour.gap_spread, len(gaps)))
    second = arrivals.astype(int)
    answered = ~failed
    return Answers(
        requests=_whole(second),
        errors=_whole(second[failed]),
        ttft=_whole_buckets(second[answered], ttft[answered], TTFT_BOUNDS),
        ttft_seconds=_sums(second[answered], ttft[answered]),
        itl=_whole_buckets(np.repeat(second, tokens), gaps, ITL_BOUNDS),
        itl_seconds=_sums(np.repeat(second, tokens), gaps),
    )


def waits(
    arrivals: Array, mean_seconds: Array, replicas: int, chance: np.random.Generator
) -> Array:
    """Return the waits in the queues of replicas, each with its own requests."""
    served = mean_seconds * chance.exponential(1.0, len(arrivals))
    replica = chance.integers(0, replicas, len(arrivals))
    free = [0.0] * replicas
    waited = np.zeros(len(arrivals))
    for index, (arrival, where) in enumerate(zip(arrivals, replica, strict=True)):
        begin = max(arrival, free[where])
        waited[index] = begin - arrival
        free[where] = begin + served[index]
    return waited


def _whole(second: Array) -> Array:
    """Return the whole counts at the end of each second."""
    return np.bincount(second, minlength=SECONDS).cumsum()


def _whole_buckets(second: Array, values: Array, bounds: tuple[float, ...]) -> Array:
    """Return the whole counts at the end of each second, by buckets."""
    buckets = len(bounds) + 1
    place = second * buckets + np.searchsorted(np.array(bounds), values, side="left")
    counts = np.bincount(place, minlength=SECONDS * buckets)
    return counts.reshape(SECONDS, buckets).cumsum(axis=0)


def _sums(second: Array, values: Array) -> Array:
    return np.bincount(second, weights=values, minlength=SECONDS).cumsum()


def canary(case: Case, seed: int) -> tuple[CanaryOutcome, int, str]:
    """Return the outcome, the second of it, and its cause."""
    chance = np.random.default_rng(seed)
    old = answers(case.old, case.rate * (1 - case.share), case.old_replicas, chance)
    new = answers(case.new, case.rate * case.share, 1, chance)
    for second in range(SECONDS):
        verdict = judge_canary(
            old.until(second),
            new.until(second),
            RULES,
            elapsed_seconds=second + 1.0,
        )
        if verdict.outcome is not CanaryOutcome.GOES_ON:
            break
    return verdict.outcome, second + 1, verdict.cause


NORMAL: Final = Behaviour()
ALL: Final = "at least 19 of 20"
FEW: Final = "at most 1 of 20"
STEADY: Final = replace(
    NORMAL, ttft=0.3, ttft_spread=0.05, itl=0.03, gap_spread=0.05, stream_spread=0.05
)
QUEUED: Final = replace(NORMAL, ttft=0.05, ttft_spread=0.5, replica_seconds=0.5)
CASES: Final = (
    Case(name="equal", old=NORMAL, new=NORMAL, goal=FEW),
    Case(name="errs in 2 %, old 0 %", old=NORMAL, new=replace(NORMAL, errors=0.02), goal=ALL),
    Case(name="first token 30 % slower", old=NORMAL, new=replace(NORMAL, ttft=0.26), goal=ALL),
    Case(name="between tokens 30 % slower", old=NORMAL, new=replace(NORMAL, itl=0.026), goal=ALL),
    Case(
        name="equal, both err in 2 %",
        old=replace(NORMAL, errors=0.02),
        new=replace(NORMAL, errors=0.02),
        goal=FEW,
    ),
    Case(
        name="equal, load in waves (latencies up to x 3)",
        old=replace(NORMAL, wave=2.0),
        new=replace(NORMAL, wave=2.0),
        goal=FEW,
    ),
    Case(
        name="equal, requests queue at each replica (half busy)",
        old=QUEUED,
        new=QUEUED,
        goal=FEW,
    ),
    Case(
        name="5 % slower in both",
        old=NORMAL,
        new=replace(NORMAL, ttft=0.21, itl=0.021),
        goal=FEW,
    ),
    Case(
        name="first token 30 % slower, spread x 1.5",
        old=replace(NORMAL, ttft_spread=1.2),
        new=replace(NORMAL, ttft_spread=1.2, ttft=0.26),
        goal=ALL,
    ),
    Case(
        name="first token 30 % slower, load in waves",
        old=replace(NORMAL, wave=2.0),
        new=replace(NORMAL, wave=2.0, ttft=0.26),
        goal=ALL,
    ),
    Case(
        name="both 30 % slower within one bucket",
        old=STEADY,
        new=replace(STEADY, ttft=0.39, itl=0.039),
        goal=ALL,
    ),
    Case(
        name="errs in 3 %, old 1 %",
        old=replace(NORMAL, errors=0.01),
        new=replace(NORMAL, errors=0.03),
        goal="-",
    ),
    Case(
        name="errs in 2 %, 2 requests a second",
        old=NORMAL,
        new=replace(NORMAL, errors=0.02),
        goal="-",
        rate=2.0,
        old_replicas=2,
    ),
)  # fmt: skip


def row(case: Case, canaries: int) -> str:
    results = [canary(case, seed) for seed in range(canaries)]
    ends = sorted(
        second for outcome, second, _ in results if outcome is CanaryOutcome.TURNED_BACK
    )
    causes = sorted(
        {
            str(cause)
            for outcome, _, cause in results
            if outcome is CanaryOutcome.TURNED_BACK
        }
    )
    text = "-"
    if ends:
        middle = ends[(len(ends) - 1) // 2]
        text = f"{middle} / {ends[ceil(0.95 * len(ends)) - 1]}"
    return (
        f"| {case.name} | {case.goal} | {len(ends)} of {canaries} "
        f"| {20 * len(ends) / canaries:.1f} | {text} | {', '.join(causes) or '-'} |"
    )


def table(canaries: int) -> Iterator[str]:
    yield (
        "| new revision | goal: turned back | turned back | of 20 | after, p50 / p95 s "
        "| causes |"
    )
    yield "|" + "---|" * 6
    for case in CASES:
        yield row(case, canaries)


ABOUT = """{canaries} canaries of each kind in virtual time, each judged every second for
{seconds} s; {rate:.0f} requests a second, {share:.0%} of them to the new revision. Time to first
token: median 200 ms, standard deviation of its logarithm 0.8; between tokens: median 20 ms, 0.3
between streams and 0.2 within one, {tokens:.0f} tokens a stream. Latencies are known by the
buckets of the gateway and their sum. The first four rows are the goals of the issue; the others
were chosen to be hard. Where requests queue at each replica, the times to first token of one
replica depend on each other for longer than the test assumes (two count as one), and an equal
revision is turned back too often. With three as one (100 canaries) it was turned back in 0.4 of
20, but a first token that is 30 % slower was found in 18.6 of 20 only.

`benchmarks/gateway/canary.py` has the model. Everything is simulated: no row says how much real
replicas of one revision differ.

"""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--canaries", type=int, default=200, help="of each kind")
    parser.add_argument("--write", type=Path, help="file to write the table to")
    arguments = parser.parse_args()
    lines = []
    for line in table(arguments.canaries):
        print(line, flush=True)
        lines.append(line)
    if arguments.write:
        now = datetime.now(UTC)
        load = ", ".join(f"{average:.1f}" for average in os.getloadavg())
        title = f"# Canary of a revision\n\n{now:%Y-%m-%d %H:%M} UTC, {processor()}, "
        machine = f"{os.cpu_count()} cores, no GPU, load {load}; "
        python = f"Python {platform.python_version()}.\n\n"
        about = ABOUT.format(
            canaries=arguments.canaries,
            seconds=SECONDS,
            rate=REQUESTS_PER_SECOND,
            share=SHARE,
            tokens=MEAN_TOKENS,
        )
        arguments.write.write_text(
            title + machine + python + about + "\n".join(lines) + "\n"
        )
    return 0


def processor() -> str:
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    names = [line.split(": ")[1] for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()


if __name__ == "__main__":
    sys.exit(main())
