"""Policies that choose the number of replicas, on real traces in virtual time.

Replays the kept parts of the Azure 2023 traces, with 20 requests for each row, as a fluid of
work: a request costs `tokens / R + output x itl / b` seconds of one replica, replicas serve in
order of arrival, and a request that waits for more than 2 s is a miss. Every policy decides
once a second from the seconds before. A replica that is woken serves after 1 s or 3 s, one
that is started after 30 s. The run goes through the whole part; parameters were chosen by the
first half and by traces that are put together from blocks of it, and the table
has the second half.

Run: .venv/bin/python benchmarks/gateway/scaling.py [--tuning] [--write FILE]
"""

import argparse
import os
import platform
import sys
from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from itertools import accumulate
from math import ceil
from pathlib import Path
from random import Random
from typing import Final

from benchmarks.gateway.scaling_policies import (
    COPIES,
    ITL_SECONDS,
    LONGEST_WAIT,
    PREFILL_TOKENS_PER_SECOND,
    RUNNING,
    UTILISATION,
    KedaLike,
    KnativeWindows,
    NeedKnownAhead,
    OwnPolicy,
    Policy,
    Trace,
    View,
    mean,
)
from corral.traces.request_traces import read_request_trace

TRACES = Path(os.environ.get("CORRAL_TRACES", "../shared/traces"))
OTHER_UTILISATIONS: Final = (0.8, 0.9)
RESAMPLED: Final = 9
RESAMPLED_SECONDS: Final = 1800
WARM_UP_SECONDS: Final = 600
POINTS: Final = 10  # of each second, whose wait is measured
USEFUL_SECONDS: Final = 60  # of room that is lent in one piece


def read_trace(
    name: str,
    *,
    peak: float,
    rate: float,
    tokens: tuple[float, float],
    goal: float,
) -> Trace:
    path = TRACES / "serving" / f"azure2023_{name}.csv.gz"
    rows = read_request_trace(path)
    seconds = [int(row.arrival) for row in rows]
    trace = Trace(
        name=name,
        requests=[0] * (seconds[-1] + 1),
        prompt_tokens=[0] * (seconds[-1] + 1),
        output_tokens=[0] * (seconds[-1] + 1),
        hour_peak=peak,
        hour_rate=rate,
        hour_tokens=tokens,
        goal_misses=goal,
    )
    for second, row in zip(seconds, rows, strict=True):
        trace.requests[second] += COPIES
        trace.prompt_tokens[second] += COPIES * row.prompt_tokens
        trace.output_tokens[second] += COPIES * row.output_tokens
    return trace


def share_of_misses(
    work: Sequence[float], requests: Sequence[int], awake: Sequence[int], part: range
) -> float:
    """Return the share of the requests in a part that wait for longer than allowed."""
    arrived = [0.0, *accumulate(work)]
    served = [0.0]
    last = awake[-1] or 1
    while len(served) <= len(work) or served[-1] < arrived[-1] - 1e-6:
        second = len(served) - 1
        most = arrived[min(second + 1, len(work))]
        capacity = awake[second] if second < len(work) else last
        served.append(min(most, served[-1] + capacity))
    misses = 0.0
    for second in part:
        for point in range(POINTS) if requests[second] else ():
            at = (point + 0.5) / POINTS
            level = arrived[second] + at * work[second]
            end = bisect_left(served, level - 1e-9)
            step = served[end] - served[end - 1]
            moment = end - 1 + (level - served[end - 1]) / step
            if moment - (second + at) > LONGEST_WAIT:
                misses += requests[second] / POINTS
    total = sum(requests[second] for second in part)
    return misses / total if total else 0.0


def replay(
    trace: Trace, policy: Policy, *, ready_seconds: float, first: int, most: int
) -> tuple[list[int], list[int]]:
    """Return the ready replicas of each second, and those that do not sleep."""
    view = View(second=0, wanted=first, ready=first, most=most, backlog=0.0)
    coming: list[tuple[float, int]] = []
    ready: list[int] = []
    held: list[int] = []
    for second, work in enumerate(trace.work):
        view.ready += sum(count for at, count in coming if at <= second)
        coming = [(at, count) for at, count in coming if at > second]
        ready.append(view.ready)
        held.append(view.wanted)
        served = min(view.backlog + work, float(view.ready))
        view.backlog += work - served
        view.second = second
        view.busy.append(served)
        view.outstanding.append(served + view.backlog)
        view.ready_before.append(view.ready)
        wanted = min(most, policy(view))
        if wanted > view.wanted:
            coming.append((second + 1 + ready_seconds, wanted - view.wanted))
        else:
            excess = view.wanted - wanted
            while excess and coming:
                at, count = coming.pop()
                kept = max(0, count - excess)
                excess -= count - kept
                if kept:
                    coming.append((at, kept))
            view.ready -= excess
        view.wanted = wanted
    return ready, held


def turns_of(wanted: Sequence[int], part: range) -> tuple[int, int]:
    """Return the changes of direction in a part, and the most within 10 minutes."""
    turns = []
    direction = 0
    for second in range(1, len(wanted)):
        change = wanted[second] - wanted[second - 1]
        if change:
            new_direction = 1 if change > 0 else -1
            if direction and new_direction != direction:
                turns.append(second)
            direction = new_direction
    inside = [second for second in turns if second in part]
    most = max(
        (sum(turn <= other < turn + 600 for other in inside) for turn in inside),
        default=0,
    )
    return len(inside), most


def lent_share(
    wanted: Sequence[int], part: range, most: int, least_seconds: int
) -> float:
    """Return the share of the peak's room that is asleep for long enough in one piece."""
    lent = 0
    for replica in range(most):
        run = 0
        for second in part:
            if wanted[second] <= replica:
                run += 1
                continue
            lent += run if run >= least_seconds else 0
            run = 0
        lent += run if run >= least_seconds else 0
    return lent / most / len(part)


def fewest_always_on(trace: Trace, part: range, misses: float) -> int:
    lower = 1
    upper = ceil(max(trace.work))
    while lower < upper:
        middle = (lower + upper) // 2
        awake = [middle] * len(trace.work)
        if share_of_misses(trace.work, trace.requests, awake, part) <= misses:
            upper = middle
        else:
            lower = middle + 1
    return lower


@dataclass(frozen=True, slots=True)
class Result:
    """Figures of the own policy, woken in 3 s."""

    misses: float
    lent: float
    most_turns: int


def table(trace: Trace, part: range, results: dict[str, Result]) -> Iterator[str]:
    strict = fewest_always_on(trace, part, trace.goal_misses)
    hour = trace.hour_peak_replicas
    own = "**`route.replica_count`**"
    no_limit = f"{own}, at most twice the peak"
    others = [
        (f"{own}, target {share:.0%}", 3.0, OwnPolicy(trace, 3.0, utilisation=share))
        for share in OTHER_UTILISATIONS
    ]
    policies: list[tuple[str, float, Policy]] = [
        (f"{own}, woken in 1 s", 1.0, OwnPolicy(trace, 1.0)),
        (f"{own}, woken in 3 s", 3.0, OwnPolicy(trace, 3.0)),
        (f"{own}, started in 30 s", 30.0, OwnPolicy(trace, 30.0, can_sleep=False)),
        (no_limit, 3.0, OwnPolicy(trace, 3.0)),
        *others,
        ("Knative's windows, woken in 3 s", 3.0, KnativeWindows()),
        ("Knative's windows, started in 30 s", 30.0, KnativeWindows()),
        ("KEDA-like, woken in 3 s", 3.0, KedaLike()),
        ("KEDA-like, started in 30 s", 30.0, KedaLike()),
        ("clairvoyant, held 300 s", 3.0, NeedKnownAhead(trace, 3.0)),
        ("peak of the hour always on", 0.0, lambda view: hour),
        ("fewest always on that keep the goal", 0.0, lambda view: strict),
    ]  # fmt: skip
    total = sum(trace.requests[second] for second in part)
    used = mean([trace.work[second] for second in part])
    yield (
        f"**{trace.name}**: {total:,} requests, mean work {used:.1f} replicas. Peak of the "
        f"hour: {hour} replicas. Fewest always on with at most {trace.goal_misses:.1%} "
        f"misses in this part: {strict}."
    )
    yield ""
    yield (
        "| policy | misses | lent of the hour's peak | of it for 60 s or more | lent of the "
        "fewest | mean not asleep | turns | most in 10 min |"
    )
    yield "|" + "---|" * 8
    for name, ready_seconds, policy in policies:
        first = hour if name.startswith("peak") else strict
        most = 2 * hour if name == no_limit else hour
        ready, held = replay(
            trace, policy, ready_seconds=ready_seconds, first=first, most=most
        )
        misses = share_of_misses(trace.work, trace.requests, ready, part)
        awake = mean([held[second] for second in part])
        turns, most_turns = turns_of(held, part)
        if name == f"{own}, woken in 3 s":
            results[trace.name] = Result(misses, 1 - awake / hour, most_turns)
        yield (
            f"| {name} | {misses:.2%} | {1 - awake / hour:.0%} "
            f"| {lent_share(held, part, hour, USEFUL_SECONDS):.0%} "
            f"| {1 - awake / strict:.0%} | {awake:.1f} | {turns} | {most_turns} |"
        )
    yield ""


def resampled(trace: Trace, seed: int) -> Trace:
    """Return a trace of blocks of the first half, with idle minutes between some."""
    chance = Random(seed)
    block = (30, 60, 120)[seed % 3]
    half = len(trace.requests) // 2
    seconds: list[int | None] = []
    while len(seconds) < RESAMPLED_SECONDS:
        begin = chance.randrange(0, half - block)
        seconds.extend(range(begin, begin + block))
        if chance.random() < 0.15:
            seconds.extend([None] * chance.choice((60, 120, 240)))

    def pick(values: Sequence[int]) -> list[int]:
        chosen = seconds[:RESAMPLED_SECONDS]
        return [0 if second is None else values[second] for second in chosen]

    return replace(
        trace,
        requests=pick(trace.requests),
        prompt_tokens=pick(trace.prompt_tokens),
        output_tokens=pick(trace.output_tokens),
    )


def tuning(trace: Trace) -> Iterator[str]:
    """Compare target utilisations on traces of blocks of the first half."""
    traces = [resampled(trace, seed) for seed in range(RESAMPLED)]
    part = range(WARM_UP_SECONDS, RESAMPLED_SECONDS)
    most = trace.hour_peak_replicas
    first = fewest_always_on(trace, range(len(trace.requests) // 2), trace.goal_misses)
    yield f"**{trace.name}**, {RESAMPLED} traces of blocks of the first half, woken in 3 s."
    yield ""
    yield "| target | misses, mean | misses, most | lent of the hour's peak |"
    yield "|---|---|---|---|"
    for share in sorted({UTILISATION, *OTHER_UTILISATIONS}):
        misses = []
        awake = []
        for other in traces:
            policy = OwnPolicy(other, 3.0, utilisation=share)
            ready, held = replay(
                other, policy, ready_seconds=3.0, first=first, most=most
            )
            misses.append(share_of_misses(other.work, other.requests, ready, part))
            awake.append(mean([held[second] for second in part]))
        lent = 1 - mean(awake) / most
        yield f"| {share:.0%} | {mean(misses):.2%} | {max(misses):.2%} | {lent:.0%} |"
    yield ""


ABOUT = """Azure 2023 traces, kept parts, x {copies}; {half} half of each part. A fluid of work
with {prefill:,.0f} prefill tokens a second, {itl:.0f} ms between tokens and {running:.0f} running
requests for each replica; a request that waits for more than {wait:.0f} s is a miss. Output tokens
are known at arrival here, and estimated in the gateway. `benchmarks/gateway/scaling.py` has
the model.

| goal | measured here |
|---|---|
| code, woken in 3 s: at most 1 % misses with at least 35 % of the peak's room lent | {code} |
| conv, woken in 3 s: at most 0.1 % misses | {conv} |
| conv: at most 1 turn in 10 minutes | {turns} |

How to read the table. The peak of the hour is the demand of its busiest 10 s, by the figures of
the traces' README, and the most that policies may have awake, but for one row. The busiest part
of the hour of code is kept apart: the part here never needs that many. "Lent of the fewest"
compares with the fewest replicas that, always on, keep the goal in the very part that is
reported. They are found in hindsight; a negative share means that the policy kept more awake
than that. **Against that strict peak nothing is lent on code.** The clairvoyant knows what every
half minute needs, wakes replicas in time and keeps them for 300 s: its row shows what the hold
costs. How the anchor of the issue (41 % lent, 0.6 % misses) defined its peak is not recorded.

On conv the policy wants more than the peak of the hour: it stays at the limit, so the goals are
kept there by the limit. The row without it shows what it would keep awake.

How the parameters were chosen. The first half of code alone does not tell targets apart (no misses
from 80 % to 90 %), so they were compared on traces of its blocks: 85 % has the most lent room with
less than 0.5 % misses. The second half was replayed during development: a first version,
which took the mean of 10 s for the load of now although it is 5 s old, had 7.25 % misses at a
target of 90 %. The rows for other targets show how much rests on the choice.

"""


def about(half: str, results: Mapping[str, Result]) -> str:
    code = results["code"]
    conv = results["conv"]
    return ABOUT.format(
        copies=COPIES,
        half=half,
        prefill=PREFILL_TOKENS_PER_SECOND,
        itl=1000 * ITL_SECONDS,
        running=RUNNING,
        wait=LONGEST_WAIT,
        code=f"{code.misses:.2%} misses, {code.lent:.0%} of the hour's peak lent",
        conv=f"{conv.misses:.2%}",
        turns=f"{conv.most_turns}",
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tuning", action="store_true", help="report the first halves")
    parser.add_argument("--write", type=Path, help="file to write the tables to")
    arguments = parser.parse_args()
    lines: list[str] = []
    results: dict[str, Result] = {}
    traces = (
        read_trace("code", peak=13.3, rate=2.4, tokens=(2048.0, 28.0), goal=0.01),
        read_trace("conv", peak=1.8, rate=5.4, tokens=(1155.0, 211.0), goal=0.001),
    )
    for trace in traces:
        half = len(trace.requests) // 2
        part = range(half) if arguments.tuning else range(half, len(trace.requests))
        for line in table(trace, part, results):
            print(line, flush=True)
            lines.append(line)
    for line in tuning(traces[0]):
        print(line, flush=True)
        lines.append(line)
    if arguments.write:
        now = datetime.now(UTC)
        load = ", ".join(f"{average:.1f}" for average in os.getloadavg())
        title = f"# Number of replicas\n\n{now:%Y-%m-%d %H:%M} UTC, {processor()}, "
        machine = f"{os.cpu_count()} cores, no GPU, load {load}; "
        python = f"Python {platform.python_version()}.\n\n"
        text = about("first" if arguments.tuning else "second", results)
        arguments.write.write_text(title + machine + python + text + "\n".join(lines))
    return 0


def processor() -> str:
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    names = [line.split(": ")[1] for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()


if __name__ == "__main__":
    sys.exit(main())
