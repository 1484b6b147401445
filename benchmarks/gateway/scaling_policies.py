"""Policies that choose the number of replicas, for `benchmarks/gateway/scaling.py`."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from math import ceil
from typing import Final

from corral.route.load_history import (
    LoadHistory,
    ServiceCounters,
    begin_history,
    count_load,
    note_replica_count,
)
from corral.route.replica_count import (
    MeasuredReplicas,
    ReplicaLimits,
    decide_replica_count,
)

COPIES: Final = 20
PREFILL_TOKENS_PER_SECOND: Final = 8000.0
ITL_SECONDS: Final = 0.03
RUNNING: Final = 16.0
LONGEST_WAIT: Final = 2.0
UTILISATION: Final = 0.85  # of a mean over 10 s, at which few wait; see the results
NOTHING_HELD: Final = 0.5  # requests


@dataclass(frozen=True, slots=True, kw_only=True)
class Trace:
    """Load of each second, and what is known of the hour that the trace is a part of.

    `hour_peak`: busiest 10 s of the hour over its mean, `hour_rate`: rows a second, and
    `hour_tokens`: mean tokens in and out, all from the README of the traces.
    """

    name: str
    requests: list[int]
    prompt_tokens: list[int]
    output_tokens: list[int]
    hour_peak: float
    hour_rate: float
    hour_tokens: tuple[float, float]
    goal_misses: float

    @property
    def work(self) -> list[float]:
        pairs = zip(self.prompt_tokens, self.output_tokens, strict=True)
        return [seconds_of(prompt, output) for prompt, output in pairs]

    @property
    def hour_peak_replicas(self) -> int:
        work = seconds_of(*self.hour_tokens) * self.hour_rate * COPIES
        return ceil(self.hour_peak * work)


def seconds_of(prompt: float, output: float) -> float:
    return prompt / PREFILL_TOKENS_PER_SECOND + output * ITL_SECONDS / RUNNING


@dataclass(slots=True)
class View:
    """State that a policy may use at the end of a second."""

    second: int
    wanted: int  # awake, waking and starting
    ready: int
    most: int
    backlog: float  # replica-seconds of work that waits
    busy: list[float] = field(default_factory=list)  # replicas at work, each second
    ready_before: list[int] = field(default_factory=list)
    outstanding: list[float] = field(default_factory=list)


Policy = Callable[[View], int]


class OwnPolicy:
    """`route.replica_count`, from whole counters of the trace."""

    def __init__(
        self,
        trace: Trace,
        ready_seconds: float,
        *,
        can_sleep: bool = True,
        utilisation: float = UTILISATION,
    ) -> None:
        self.trace = trace
        self.of_each = sum(trace.work) / sum(trace.requests)
        self.utilisation = utilisation
        self.ready_seconds = ready_seconds
        self.can_sleep = can_sleep
        self.counters = ServiceCounters(0.0, 0.0, 0.0)
        self.history: LoadHistory = begin_history(self.counters, 0.0)

    def __call__(self, view: View) -> int:
        now = view.second + 1.0
        held = view.backlog / self.of_each
        self.counters = ServiceCounters(
            self.counters.requests + self.trace.requests[view.second],
            self.counters.new_tokens + self.trace.prompt_tokens[view.second],
            self.counters.output_tokens + self.trace.output_tokens[view.second],
            view.outstanding[-1] / self.of_each,
        )
        self.history = count_load(self.history, self.counters, now)
        measured = MeasuredReplicas(
            awake=view.wanted,
            ready=view.ready,
            sleeping=view.most - view.wanted if self.can_sleep else 0,
            prefill_tokens_per_second=PREFILL_TOKENS_PER_SECOND,
            itl_seconds=ITL_SECONDS,
            running=RUNNING,
            utilisation=self.utilisation,
            wake_seconds=self.ready_seconds if self.can_sleep else None,
            start_seconds=30.0,
            held_requests=round(held) if held > NOTHING_HELD else 0,
        )
        limits = ReplicaLimits(least=1, most=view.most)
        decision = decide_replica_count(self.history, measured, limits, now)
        self.history = note_replica_count(
            self.history,
            needed=decision.needed,
            change=decision.wanted - view.wanted,
            now=now,
        )
        return decision.wanted


class KnativeWindows:
    """Knative's autoscaler with its defaults: 60 s, panic within 6 s at 2 x, 70 %."""

    def __init__(self) -> None:
        self.panic_until = -1
        self.panic_most = 0

    def __call__(self, view: View) -> int:
        if view.second % 2:
            return view.wanted
        stable = ceil(mean(view.outstanding[-60:]) / 0.7)
        panic = ceil(mean(view.outstanding[-6:]) / 0.7)
        if panic >= 2 * max(1, view.ready):
            if view.second >= self.panic_until:
                self.panic_most = 0
            self.panic_until = view.second + 60
        least = view.ready // 2
        if view.second < self.panic_until:
            self.panic_most = max(self.panic_most, panic, view.wanted)
            return max(1, self.panic_most)
        return max(1, stable, least)


class KedaLike:
    """Horizontal autoscaler as KEDA sets it up: each 15 s, down after 300 s."""

    def __init__(self) -> None:
        self.wanted_before: list[int] = []

    def __call__(self, view: View) -> int:
        if view.second % 15:
            return view.wanted
        self.wanted_before = self.wanted_before or [view.wanted] * 21
        load = mean(view.outstanding[-15:])
        wanted = max(1, ceil(load / 0.7))
        if abs(wanted / view.wanted - 1.0) <= 0.1:
            wanted = view.wanted
        wanted = min(wanted, max(2 * view.wanted, view.wanted + 4))
        self.wanted_before = [*self.wanted_before[-20:], wanted]
        return max(wanted, min(view.wanted, max(self.wanted_before)))


class NeedKnownAhead:
    """Clairvoyant: what keeps all waits short, from all windows of up to 30 s that a second
    is a part of, woken in time and kept for 300 s."""

    def __init__(self, trace: Trace, ready_seconds: float) -> None:
        arrived = [0.0, *accumulate(trace.work)]
        seconds = len(trace.work)
        self.ahead = ceil(ready_seconds) + 1
        self.needs = [0.0] * seconds
        for span in range(1, 31):
            for begin in range(seconds - span + 1):
                work = arrived[begin + span] - arrived[begin]
                need = work / (span + LONGEST_WAIT)
                for second in range(begin, min(seconds, begin + span + 2)):
                    self.needs[second] = max(self.needs[second], need)

    def __call__(self, view: View) -> int:
        begin = max(0, view.second - 300)
        return max(1, ceil(max(self.needs[begin : view.second + 1 + self.ahead])))


def mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)
