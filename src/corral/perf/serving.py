"""Latency of the requests to one replica: the wait of each request for its first token,
and the time between later tokens."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from corral.perf.inference import Replica, StepWork, step_seconds

ROUNDS: Final = 26  # of halving: to a hundred-millionth of what it began with
NEAR: Final = 5e-4  # of requests that run, that a solution is off at the most
TILE: Final = 128  # tokens: the rows of a tile of matrix products, by which steps grow
HELD_STEPS: Final = 1.0  # running and scheduled ones, that a new request waits for


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """Requests to one replica: `rate` per second, each with `prompt` input tokens and
    `output` output tokens.

    `shared`: tokens of the prompt that are in the cache already. Arrivals are Poisson.
    """

    rate: float
    prompt: float
    output: float
    shared: float = 0.0

    @property
    def new(self) -> float:
        """Return the prompt tokens that are not cached and must be computed; at least
        1."""
        return max(1.0, self.prompt - self.shared)


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchLimits:
    """Limits of one engine step: the most `sequences` and the most `tokens`. A prompt
    with more tokens is computed in parts, together with the tokens of other requests
    (chunked prefill, arXiv:2308.16369)."""

    sequences: int = 256
    tokens: int = 8192


@dataclass(frozen=True, slots=True, kw_only=True)
class Served:
    """Performance of requests under a load, in seconds. `busy`: the load as a share of
    the highest throughput; from 1 on the queue grows without bound, and all times are
    infinite.

    `running`: mean number of requests in the batch. `queue_seconds`: mean wait for a
    place in the batch. `full_share`: share of the requests that find the batch full and
    wait. `wait_seconds`: `queue_seconds` plus the wait for prompts of earlier requests.
    `running_step`: duration of the step that runs when a request arrives, times the
    probability that one runs.
    """

    load: Load
    running: float
    busy: float
    queue_seconds: float
    full_share: float
    wait_seconds: float
    running_step: float
    decode_step: float
    # that is added to the others' steps by each prompt, all its parts
    prompt_step: float
    parts: int  # steps that a prompt takes
    request_seconds: float
    ttft: float
    itl: float

    @property
    def latency(self) -> float:
        """Return the mean time from arrival to the last token."""
        return self.ttft + max(0.0, self.load.output - 1) * self.itl

    @property
    def output_rate(self) -> float:
        """Return the output tokens in a second."""
        return self.load.rate * self.load.output

    def ttft_quantile(self, share: float) -> float:
        """Return the time to the first token that the fraction `share` of all requests
        does not exceed.

        An arriving request waits for the rest of the current step, which is uniformly
        distributed. It may also wait for a place and for earlier prompts. That wait is
        zero for most requests and exponential for the others.
        """
        if math.isinf(self.ttft):
            return math.inf
        prompts_busy = min(0.999, self.load.rate * self.prompt_step)
        wait_probability = max(prompts_busy, self.full_share)
        step, mean_wait = self.running_step, self.wait_seconds
        min_seconds = self.ttft - mean_wait - step / 2

        def above(seconds: float) -> float:
            return _exceed_probability(
                seconds - min_seconds, step, wait_probability, mean_wait
            )

        lower_bound, upper_bound = (
            min_seconds,
            min_seconds + step + 50 * (mean_wait / max(wait_probability, 1e-9)) + 1e-9,
        )
        for _ in range(ROUNDS):
            middle = (lower_bound + upper_bound) / 2
            lower_bound, upper_bound = (
                (middle, upper_bound)
                if above(middle) > 1 - share
                else (lower_bound, middle)
            )
        return upper_bound

    def itl_quantile(self, share: float) -> float:
        """Return the time between two tokens of a request that the fraction `share` of
        all such times does not exceed. A step contains either a part of one prompt, and
        is then longer, or no prompt."""
        if math.isinf(self.itl):
            return math.inf
        with_prompt = min(1.0, self.load.rate * self.parts * self.itl)
        return self.decode_step + (
            self.prompt_step / self.parts if share > 1 - with_prompt else 0.0
        )


def served(replica: Replica, load: Load, limits: BatchLimits = BatchLimits()) -> Served:
    """Return the performance of one replica under a load of independent requests.

    A prompt's tokens are computed in the steps of other requests, and lengthen them. So
    a step takes the time of its new tokens, extended by the share of time that prompts
    take. The number of running requests is the rate times how long each runs (Little's
    law), and this duration depends on the number: the point where both agree is
    computed. The wait for a place in the batch is that of a queue with one server for
    each place (Sakasegawa 1977, doi:10.1007/BF02911636).
    """
    limit = float(limits.sequences)

    def running(others: float) -> float:
        """Return the mean number of running requests if each step contains `others` of
        them."""
        return (
            load.rate
            * max(0.0, load.output - 1)
            * _inter_token_seconds(replica, load, limits, others)
        )

    max_rate = capacity(replica, load, limits)
    if load.rate >= max_rate:
        return _overloaded_state(replica, load, limits)
    crossing = _find_crossing(running, limit)
    return _steady_state(replica, load, limits, crossing, load.rate / max_rate)


def _find_crossing(running: Callable[[float], float], limit: float) -> float:
    """Return where running(x) falls below x, between 0 and `limit`, by regula falsi
    that halves the weight of an end point that stays (Dowell and Jarratt 1971,
    doi:10.1007/BF01934364)."""
    lower_bound, upper_bound = 0.0, limit
    above, below = running(lower_bound), running(upper_bound) - upper_bound
    if below >= 0:
        return upper_bound
    for _ in range(ROUNDS):
        if math.isinf(above):
            middle = (lower_bound + upper_bound) / 2
        else:
            middle = lower_bound + (upper_bound - lower_bound) * above / (above - below)
        gap = running(middle) - middle
        if abs(gap) <= NEAR * max(1.0, middle):
            return middle
        if gap > 0:
            lower_bound, above, below = middle, gap, below / 2
        else:
            upper_bound, above, below = middle, above / 2, gap
    return middle


def served_together(
    replica: Replica, load: Load, concurrency: int, limits: BatchLimits = BatchLimits()
) -> Served:
    """Return the performance as `served` does, with a constant number of requests: each
    request that ends is followed by the next. The rate of `load` is ignored; the result
    has the computed rate."""
    other_requests = min(concurrency, limits.sequences) - 1.0
    lower_rate, upper_rate = 0.0, capacity(replica, load, limits)
    for _ in range(ROUNDS):
        rate = (lower_rate + upper_rate) / 2
        steady = _steady_state(
            replica, _load_at_rate(load, rate), limits, other_requests, 0.0
        )
        lower_rate, upper_rate = (
            (rate, upper_rate)
            if rate * steady.latency < concurrency
            else (lower_rate, rate)
        )
    return _steady_state(
        replica, _load_at_rate(load, lower_rate), limits, other_requests, 0.0
    )


def capacity(
    replica: Replica, load: Load, limits: BatchLimits = BatchLimits()
) -> float:
    """Return the most requests in a second that a replica can sustain, regardless of
    their wait: the rate with a full batch."""
    batch_limit = float(limits.sequences)
    decode = _decode_step(replica, load, batch_limit)
    # As many prompts begin as end: each step has a share of 1 / output of all.
    together = batch_limit / _pipeline_lanes(replica) / load.output
    prompt = _prompt_step(replica, load, limits, batch_limit, together)
    # In one second, each stage of the pipeline computes the prompts, and in the rest
    # steps of its share of `full` tokens: rate x output / full x decode + rate x prompt
    # / lanes = 1.
    decodes = max(0.0, load.output - 1) / batch_limit * decode
    return 1.0 / (decodes + prompt / _pipeline_lanes(replica))


def _load_at_rate(load: Load, rate: float) -> Load:
    return Load(rate=rate, prompt=load.prompt, output=load.output, shared=load.shared)


def _pipeline_lanes(replica: Replica) -> int:
    """Return the number of batches in progress at the same time: one per pipeline
    stage."""
    return replica.pipeline


def _decode_step(replica: Replica, load: Load, sequences: float) -> float:
    context = load.prompt + load.output / 2
    work = StepWork(
        decodes=max(1.0, sequences / _pipeline_lanes(replica)), context=context
    )
    return step_seconds(replica, work)


def _prefill_chunks(load: Load, limits: BatchLimits) -> int:
    return max(1, math.ceil(load.new / limits.tokens))


def _prompt_step(
    replica: Replica,
    load: Load,
    limits: BatchLimits,
    others: float,
    together: float = 1.0,
) -> float:
    """Return the seconds that one prompt adds to the steps that compute it, next to
    `others` running requests. Up to `together` prompts share a step, as far as the
    step's token limit allows."""
    prefill_chunks = _prefill_chunks(load, limits)
    prompts_per_step = max(1.0, min(together, limits.tokens / load.new))
    decodes = max(0.0, others / _pipeline_lanes(replica))
    context = load.prompt + load.output / 2
    alone = StepWork(decodes=decodes, context=context)
    base = step_seconds(replica, alone)

    def with_prompt(tokens: float) -> float:
        work = StepWork(
            prompt=max(1.0, tokens - decodes),
            prompt_context=load.shared + load.new / 2,
            ends=prompts_per_step / prefill_chunks,
            decodes=decodes,
            context=context,
        )
        return step_seconds(replica, work) - base

    tokens = prompts_per_step * load.new / prefill_chunks + decodes
    below = TILE * math.floor(tokens / TILE)
    above = (tokens - below) / TILE
    seconds = with_prompt(below + TILE) * above
    if below:
        seconds += with_prompt(below) * (1 - above)
    return prefill_chunks * max(0.0, seconds) / prompts_per_step


def _inter_token_seconds(
    replica: Replica, load: Load, limits: BatchLimits, others: float
) -> float:
    """Return the time between two tokens of a request that runs together with `others`
    other requests."""
    decode, lanes = _decode_step(replica, load, others + 1), _pipeline_lanes(replica)
    together = load.rate * decode / lanes
    prompts = load.rate * _prompt_step(replica, load, limits, others, together) / lanes
    return math.inf if prompts >= 1 else decode / (1 - prompts)


def _steady_state(
    replica: Replica, load: Load, limits: BatchLimits, others: float, busy: float
) -> Served:
    itl = _inter_token_seconds(replica, load, limits, others)
    decode = _decode_step(replica, load, others) if others > 0 else 0.0
    prompt = _prompt_step(replica, load, limits, others)
    prefill_chunks = _prefill_chunks(load, limits)
    service = (load.output - 1) * itl + decode + prompt
    queue = _queue_seconds(busy, limits.sequences, service)
    share = min(0.999, load.rate * prompt / _pipeline_lanes(replica))
    behind = share / (1 - share) * prompt / 2  # earlier prompts: M/D/1
    chance = min(1.0, others)  # that a step runs where the request comes
    request = replica.engine.request_seconds
    ttft = (
        request
        + queue
        + behind
        + chance * decode * HELD_STEPS
        + prefill_chunks * decode
        + prompt
    )
    return Served(
        load=load,
        running=others,
        busy=busy,
        queue_seconds=queue,
        full_share=_full_share(busy, limits.sequences),
        wait_seconds=queue + behind,
        running_step=chance * decode,
        decode_step=decode,
        prompt_step=prompt,
        parts=prefill_chunks,
        request_seconds=request,
        ttft=ttft,
        itl=itl,
    )


def _full_share(busy: float, places: int) -> float:
    """Return the share of requests that find all `places` taken when the load is `busy`
    of the capacity: Sakasegawa's fit of Erlang's formula C."""
    share: float = busy ** (math.sqrt(2 * (places + 1)) - 1) if busy > 0 else 0.0
    return min(1.0, share)


def _queue_seconds(busy: float, places: int, service: float) -> float:
    """Return the mean wait for one of `places` if each request holds its place for
    about the same time, `service` seconds. It is half the wait that exponential times
    would give."""
    return 0.5 * service / places * _full_share(busy, places) / (1 - busy)


def _overloaded_state(replica: Replica, load: Load, limits: BatchLimits) -> Served:
    batch_limit = float(limits.sequences)
    return Served(
        load=load,
        running=batch_limit,
        busy=load.rate / capacity(replica, load, limits),
        queue_seconds=math.inf,
        full_share=1.0,
        wait_seconds=math.inf,
        running_step=_decode_step(replica, load, batch_limit),
        decode_step=_decode_step(replica, load, batch_limit),
        prompt_step=_prompt_step(replica, load, limits, batch_limit),
        parts=_prefill_chunks(load, limits),
        request_seconds=replica.engine.request_seconds,
        ttft=math.inf,
        itl=math.inf,
    )


def _exceed_probability(
    seconds: float, step: float, waiting: float, mean: float
) -> float:
    """Return the probability that a delay exceeds `seconds`. The delay is a uniform
    part of `step`, plus a wait. Only the share `waiting` of all requests has a wait;
    `mean` is the mean wait over all requests."""
    if seconds < 0:
        return 1.0
    time_left = max(0.0, 1 - seconds / step) if step > 0 else 0.0
    if mean <= 0 or waiting <= 0:
        return time_left
    scale = mean / waiting
    early = min(seconds, step)
    if step <= 0:
        return waiting * math.exp(-seconds / scale)
    # The uniform part u is below `seconds`, and the wait is more than what is left of
    # it.
    tail = (
        scale
        / step
        * (math.exp(-(seconds - early) / scale) - math.exp(-seconds / scale))
    )
    return time_left + waiting * tail
