"""Policies that choose a replica, on a real trace of requests in virtual time.

Replays a part of the Mooncake conversation trace over replicas that prefill one prompt
after the other and keep an LRU cache of prompt blocks. Every policy sees the same
requests; those that look at prompts have an index for each replica. One replay of a whole
part is exact but its p99 rests on about 30 requests, so the table also has the means over
replays that each leave out 3 % of the requests by a seed.

Run: .venv/bin/python benchmarks/gateway/routing.py [--tuning] [--write FILE]
"""

import argparse
import heapq
import os
import platform
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import count
from pathlib import Path
from random import Random
from statistics import mean
from timeit import repeat

from corral.plan.service_replay.prefix_cache import PrefixCache, pooled_hit_share
from corral.plan.service_replay.trace_request import BLOCK_TOKENS, TraceRequest
from corral.route.choice import ReplicaState, pick
from corral.route.learned_rates import LearnedRates
from corral.route.prompt_index import PromptIndex, block_hashes
from corral.traces.request_traces import read_request_trace

TRACES = Path(os.environ.get("CORRAL_TRACES", "../shared/traces"))
RESULTS = Path(__file__).parents[1] / "results"
PART_SECONDS = 900.0  # the first part is for tuning, the second for the report
OUTPUT_TOKENS = 343.0  # mean of the trace, as the table of its README has it
ITL_SECONDS = 0.02
SUBSETS = 16
LEFT_OUT = 0.03  # share of the requests that a subset does not have


@dataclass(frozen=True, slots=True, kw_only=True)
class World:
    """Replicas and the speed of the replay."""

    name: str
    replicas: int = 8
    prefill_tokens_per_second: float = 8000.0
    cache_blocks: int = 3000
    speed: float = 1.5
    slow_replica: float = 1.0  # seconds of the first replica are multiplied by this


@dataclass(slots=True)
class Engine:
    """One replica in virtual time: FIFO prefill, then decode at a fixed speed."""

    cache: PrefixCache
    tokens_per_second: float
    free_at: float = 0.0
    busy_seconds: float = 0.0

    def serve(self, request: TraceRequest) -> tuple[int, float]:
        """Return the cached blocks and the time of the first token."""
        cached = self.cache.prefill(request.blocks)
        new_tokens = max(1, request.prompt_tokens - cached * BLOCK_TOKENS)
        seconds = new_tokens / self.tokens_per_second
        self.free_at = max(self.free_at, request.arrival) + seconds
        self.busy_seconds += seconds
        return cached, self.free_at


@dataclass(slots=True)
class View:
    """State that the gateway has of the replicas, as a policy may use it."""

    states: list[ReplicaState]
    waiting: list[int]  # requests without a first token, for each replica
    flight_tokens: list[int]  # prompt tokens of requests in flight, for each replica
    world: World
    turn: int = 0


Policy = Callable[[View, TraceRequest], int]


def round_robin(view: View, request: TraceRequest) -> int:
    return view.turn % len(view.states)


def least_requests(view: View, request: TraceRequest) -> int:
    return _least(view, lambda index: view.states[index].in_flight)


def least_pending_tokens(view: View, request: TraceRequest) -> int:
    return _least(view, lambda index: view.states[index].pending_tokens)


def sticky(saturated_seconds: float) -> Policy:
    """Longest cached prefix among replicas with less pending prefill than a limit."""

    def choose(view: View, request: TraceRequest) -> int:
        most = saturated_seconds * view.world.prefill_tokens_per_second
        free = [
            index
            for index, state in enumerate(view.states)
            if state.pending_tokens <= most
        ]
        return min(
            free or range(len(view.states)),
            key=lambda index: (
                -view.states[index].index.count_cached(request.blocks),
                view.states[index].pending_tokens,
                (index - view.turn) % len(view.states),
            ),
        )

    return choose


def blend(view: View, request: TraceRequest) -> int:
    """Sum of scores: 3 x cached share, 2 x short queue, 2 x free cache."""
    shortest = min(view.waiting)
    span = max(view.waiting) - shortest

    def score(index: int) -> float:
        cached = view.states[index].index.count_cached(request.blocks)
        queue = 1.0 - (view.waiting[index] - shortest) / span if span else 1.0
        capacity = view.world.cache_blocks * BLOCK_TOKENS
        free = max(0.0, 1.0 - view.flight_tokens[index] / capacity)
        return 3 * cached / max(1, len(request.blocks)) + 2 * queue + 2 * free

    return _least(view, lambda index: -score(index))


def least_work(view: View, request: TraceRequest) -> int:
    choice = pick(
        view.states,
        request.prompt_tokens,
        request.blocks,
        BLOCK_TOKENS,
        OUTPUT_TOKENS,
        tie=view.turn,
    )
    assert choice is not None
    return view.states.index(choice.replica)


def _least(view: View, price: Callable[[int], float]) -> int:
    size = len(view.states)
    return min(
        range(size), key=lambda index: (price(index), (index - view.turn) % size)
    )


@dataclass(slots=True)
class Outcome:
    """Figures of one replay."""

    hits: float
    ttft: list[float] = field(repr=False)
    imbalance: float
    busy: float
    capacities: list[int]

    def ttft_at(self, share: float) -> float:
        return self.ttft[min(len(self.ttft) - 1, int(share * len(self.ttft)))]


class Replay:
    """One policy over one part of a trace."""

    def __init__(self, world: World, policy: Policy, believed_blocks: int) -> None:
        self.world = world
        self.policy = policy
        rates = [world.prefill_tokens_per_second] * world.replicas
        rates[0] /= world.slow_replica
        self.engines = [Engine(PrefixCache(world.cache_blocks), rate) for rate in rates]
        self.view = View(
            [
                ReplicaState(f"replica-{index}", PromptIndex(believed_blocks))
                for index in range(world.replicas)
            ],
            [0] * world.replicas,
            [0] * world.replicas,
            world,
        )
        self.events: list[tuple[float, int, Callable[[], None]]] = []
        self.order = count()
        self.last_first_token = [0.0] * world.replicas
        self.ttft: list[float] = []
        self.hit_tokens = 0
        self.prompt_tokens = 0

    def run(self, requests: Sequence[TraceRequest]) -> Outcome:
        for request in requests:
            while self.events and self.events[0][0] <= request.arrival:
                heapq.heappop(self.events)[2]()
            self._send(request)
            self.view.turn += 1
        busy = [engine.busy_seconds for engine in self.engines]
        span = max(engine.free_at for engine in self.engines) - requests[0].arrival
        return Outcome(
            hits=self.hit_tokens / self.prompt_tokens,
            ttft=sorted(self.ttft),
            imbalance=max(busy) * len(busy) / sum(busy),
            busy=sum(busy) / len(busy) / span,
            capacities=[state.index.capacity_blocks for state in self.view.states],
        )

    def _send(self, request: TraceRequest) -> None:
        view = self.view
        chosen = self.policy(view, request)
        state = view.states[chosen]
        expected = state.index.count_cached(request.blocks)
        new_tokens = max(1, request.prompt_tokens - expected * BLOCK_TOKENS)
        state.index.add(request.blocks)
        state.pending_tokens += new_tokens
        state.in_flight += 1
        view.waiting[chosen] += 1
        view.flight_tokens[chosen] += request.prompt_tokens
        cached, first_token = self.engines[chosen].serve(request)
        ttft = first_token - request.arrival
        self.ttft.append(ttft)
        self.hit_tokens += min(cached * BLOCK_TOKENS, request.prompt_tokens)
        self.prompt_tokens += request.prompt_tokens

        work_seconds = 0.0

        def receive_first_token() -> None:
            state.pending_tokens -= new_tokens
            state.running += 1
            view.waiting[chosen] -= 1
            nonlocal work_seconds
            begin = max(request.arrival, self.last_first_token[chosen])
            self.last_first_token[chosen] = first_token
            work_seconds = first_token - begin

        def finish() -> None:
            state.running -= 1
            state.in_flight -= 1
            view.flight_tokens[chosen] -= request.prompt_tokens
            state.index.correct(request.blocks, cached)
            computed = max(1, request.prompt_tokens - cached * BLOCK_TOKENS)
            state.rates.observe_first_token(computed, work_seconds)

        self._at(first_token, receive_first_token)
        self._at(first_token + request.output_tokens * ITL_SECONDS, finish)

    def _at(self, moment: float, event: Callable[[], None]) -> None:
        heapq.heappush(self.events, (moment, next(self.order), event))


def part_of(
    requests: Sequence[TraceRequest], number: int, speed: float
) -> list[TraceRequest]:
    begin = number * PART_SECONDS / speed
    end = begin + PART_SECONDS / speed
    return [request for request in requests if begin <= request.arrival < end]


def pooled_hits(requests: Sequence[TraceRequest], world: World) -> float:
    """Share of tokens that one cache as large as all would have."""
    prompts = [(request.prompt_tokens, request.blocks) for request in requests]
    return pooled_hit_share(prompts, world.cache_blocks * world.replicas, BLOCK_TOKENS)


POLICIES: Sequence[tuple[str, Policy, float]] = (
    ("round robin", round_robin, 1),
    ("least requests", least_requests, 1),
    ("least pending tokens", least_pending_tokens, 1),
    ("sticky until 2 s pending", sticky(2.0), 1),
    ("sticky until 10 s pending", sticky(10.0), 1),
    ("blend 3:2:2", blend, 1),
    ("**`route.choice.pick`**", least_work, 1),
    ("the same, cache believed 8 x as large", least_work, 8),
    ("the same, cache believed 1/8 as large", least_work, 1 / 8),
)


def subsets_of(requests: Sequence[TraceRequest]) -> list[list[TraceRequest]]:
    chances = [Random(seed) for seed in range(SUBSETS)]
    return [
        [request for request in requests if chance.random() >= LEFT_OUT]
        for chance in chances
    ]


def table(requests: Sequence[TraceRequest], world: World) -> Iterator[str]:
    pooled = pooled_hits(requests, world)
    yield f"**{world.name}**: {len(requests):,} requests; one pooled cache: {pooled:.1%} hits."
    yield ""
    yield (
        "| policy | hits | of pooled | the same, mean | TTFT p50 / p90 / p99 s | the same, mean of "
        f"{SUBSETS} subsets | imbalance | the same, mean | busy | capacity at the end |"
    )
    yield "|" + "---|" * 10
    subsets = subsets_of(requests)
    for name, policy, belief in POLICIES:
        believed = max(1, round(world.cache_blocks * belief))
        outcome = Replay(world, policy, believed).run(requests)
        others = [Replay(world, policy, believed).run(subset) for subset in subsets]
        quantiles = " / ".join(f"{outcome.ttft_at(q):.2f}" for q in (0.5, 0.9, 0.99))
        means = " / ".join(
            f"{mean(other.ttft_at(q) for other in others):.2f}"
            for q in (0.5, 0.9, 0.99)
        )
        share = mean(
            other.hits / pooled_hits(subset, world)
            for subset, other in zip(subsets, others, strict=True)
        )
        imbalance = mean(other.imbalance for other in others)
        capacities = outcome.capacities
        yield (
            f"| {name} | {outcome.hits:.1%} | {outcome.hits / pooled:.0%} "
            f"| {share:.0%} | {quantiles} | {means} | {outcome.imbalance:.2f} "
            f"| {imbalance:.2f} | {outcome.busy:.0%} "
            f"| {min(capacities):,} to {max(capacities):,} |"
        )
    yield ""


def microseconds(call: Callable[[], object], number: int = 2000) -> float:
    return min(repeat(call, number=number, repeat=9)) / number * 1e6


def costs() -> Iterator[str]:
    """Microseconds of the functions that the gateway calls for each request."""
    chance = Random(1)
    prompts = [chance.randbytes(2048) for _ in range(4000)]
    hashes = [block_hashes(prompt) for prompt in prompts]
    long = chance.randbytes(39_000)
    long_hashes = block_hashes(long)
    states = [ReplicaState(f"replica-{number}") for number in range(8)]
    for number, chain in enumerate(hashes[:2000]):
        for state in states[number % 8 :]:
            state.index.add(chain)
    turns = count()

    def choose_and_add() -> None:
        turn = next(turns)
        choice = pick(states, 512, hashes[turn % 4000], 128.0, 300.0, tie=turn)
        assert choice is not None
        choice.replica.index.add(hashes[turn % 4000])

    def add_and_correct() -> None:
        chain = hashes[next(turns) % 4000]
        states[0].index.add(chain)
        states[0].index.correct(chain, 3)

    rates = LearnedRates()
    calls: list[tuple[str, Callable[[], object]]] = [
        ("`pick`, 8 replicas", lambda: pick(states, 512, hashes[7], 128.0, 300.0)),
        ("`pick` and `add`", choose_and_add),
        ("`add` and `correct`", add_and_correct),
        ("`block_hashes`", lambda: block_hashes(prompts[0])),
        ("`observe_first_token`", lambda: rates.observe_first_token(500, 0.1)),
        (
            "`pick`, prompt of 39 kB",
            lambda: pick(states, 9750, long_hashes, 128.0, 300.0),
        ),
        ("`block_hashes`, prompt of 39 kB", lambda: block_hashes(long)),
        ("`add`, prompt of 39 kB", lambda: states[0].index.add(long_hashes)),
    ]
    yield "**Cost of a request**: prompt of 2 kB where not said otherwise."
    yield ""
    yield "| call | microseconds |"
    yield "|---|---|"
    for name, call in calls:
        yield f"| {name} | {microseconds(call):.1f} |"


WORLDS = (
    World(name="Speed 1.5, caches of 3,000 blocks"),
    World(name="Speed 1.0, caches of 3,000 blocks", speed=1.0),
    World(name="Speed 1.5, caches of 600 blocks", cache_blocks=600),
    World(name="Speed 1.0, one replica 10 x slow", speed=1.0, slow_replica=10.0),
)


ABOUT = """Mooncake conversation trace, {} 15 minutes of it, from cold caches; 8 replicas of
8,000 prefill tokens a second. Parameters were compared on the first 15 minutes; the second
15 minutes were replayed during development too, but no parameter was chosen by them.
Every policy has the index and the reports of cached tokens. Imbalance: busiest replica over
the mean, by seconds of prefill. `benchmarks/gateway/routing.py` has the model.

"""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tuning", action="store_true", help="replay the first part")
    parser.add_argument("--write", type=Path, help="file to write the table to")
    arguments = parser.parse_args()
    lines: list[str] = []
    for world in WORLDS:
        path = TRACES / "serving" / "mooncake_conversation.jsonl.gz"
        requests = read_request_trace(path, speed=world.speed)
        part = part_of(requests, 0 if arguments.tuning else 1, world.speed)
        for line in table(part, world):
            print(line, flush=True)
            lines.append(line)
    for line in costs():
        print(line)
        lines.append(line)
    if arguments.write:
        now = datetime.now(UTC)
        load = ", ".join(f"{average:.1f}" for average in os.getloadavg())
        title = f"# Choice of a replica\n\n{now:%Y-%m-%d %H:%M} UTC, "
        machine = f"{platform.machine()}, {os.cpu_count()} cores, load {load}; "
        python = f"Python {platform.python_version()}.\n\n"
        about = ABOUT.format("first" if arguments.tuning else "second")
        arguments.write.write_text(
            title + machine + python + about + "\n".join(lines) + "\n"
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
