"""Choice of the replica for a request: least seconds of work, with a price on prefill of
tokens that another replica has cached."""

from collections.abc import Collection, Mapping, Sequence
from math import inf
from typing import Final, NamedTuple

from corral.route.learned_rates import LearnedRates
from corral.route.prompt_index import PromptIndex

# A token that is computed again also takes a place in the cache from another one, so it
# costs more than its own time: ../shared/serving.md, section 3.5.
RECOMPUTE_PRICE: Final = 4.0
# A price below this share of another one is really lower. Equal replicas differ by less
# in what was learned of them, and take turns.
REALLY_LOWER: Final = 0.9


class ReplicaState:
    """State of one replica, as the gateway keeps it.

    Attributes:
        name: name of the replica, unique in its service.
        index: prompt blocks that it probably has cached.
        rates: its learned speed.
        pending_tokens: new tokens of requests sent to it and not yet prefilled.
        running: requests that generate tokens.
        in_flight: requests sent to it whose answers have not ended.
        limit: most requests in flight; None: no limit.
        ejected_until: time until which it gets no request; 0: not ejected.
        first_token_at: time of its last first token.
    """

    __slots__ = (
        "ejected_until",
        "first_token_at",
        "in_flight",
        "index",
        "limit",
        "name",
        "pending_tokens",
        "rates",
        "running",
    )

    def __init__(
        self,
        name: str,
        index: PromptIndex | None = None,
        rates: LearnedRates | None = None,
        limit: int | None = None,
    ) -> None:
        self.name = name
        self.index = PromptIndex() if index is None else index
        self.rates = LearnedRates() if rates is None else rates
        self.pending_tokens = 0
        self.running = 0
        self.in_flight = 0
        self.limit = limit
        self.ejected_until = 0.0
        self.first_token_at = 0.0


class ReplicaChoice(NamedTuple):
    """Replica for a request, and the costs expected there."""

    replica: ReplicaState
    new_tokens: int  # of the prompt, to be prefilled
    cached_blocks: int
    seconds: float  # the price that decided; not a forecast of the latency


def pick(
    replicas: Sequence[ReplicaState],
    prompt_tokens: int,
    hashes: Sequence[int],
    tokens_per_block: float,
    output_tokens: float,
    *,
    exclude: Collection[str] = (),
    tie: int = 0,
    now: float = 0.0,
    extra_seconds: Mapping[str, float] | None = None,
) -> ReplicaChoice | None:
    """Return the replica with the least seconds of work for this request.

    The price of a replica is `(pending + (1 + 4) new) / R + E[out] x itl(running + 1)`.
    Idle replicas that have as much of the prompt cached, and whose prices are about
    equal, take turns.

    Args:
        prompt_tokens: estimated tokens of the prompt.
        hashes: block hashes of the prompt.
        tokens_per_block: mean tokens of a block.
        output_tokens: expected tokens of the answer.
        exclude: names of replicas that must not get it, such as those that failed it.
        tie: number that chooses among about equal ones, such as a counter of requests.
        now: time to which `ejected_until` is compared; without it every replica whose
            `ejected_until` is above 0 counts as ejected.
        extra_seconds: seconds to add, by the only replicas that may get the request.

    Returns: None if each replica is excluded, ejected or at its limit.
    """
    best: ReplicaState | None = None
    is_best_busy = False
    best_seconds, best_new, best_cached = inf, 0.0, 0
    price = 1.0 + RECOMPUTE_PRICE
    count = len(replicas)
    first = tie % count if count else 0
    for position in range(first - count, first):
        replica = replicas[position]
        limit = replica.limit
        if limit is not None and replica.in_flight >= limit:
            continue
        if replica.ejected_until > now or (exclude and replica.name in exclude):
            continue
        cached = replica.index.count_cached(hashes)
        new = max(1.0, prompt_tokens - cached * tokens_per_block)
        seconds = replica.rates.request_seconds(
            replica.pending_tokens + price * new, output_tokens, replica.running + 1
        )
        if extra_seconds is not None:
            seconds += extra_seconds.get(replica.name, inf)
        takes_turns = cached == best_cached and not (replica.in_flight or is_best_busy)
        if seconds < (best_seconds * REALLY_LOWER if takes_turns else best_seconds):
            best, is_best_busy = replica, replica.in_flight > 0
            best_seconds, best_new, best_cached = seconds, new, cached
    if best is None:
        return None
    return ReplicaChoice(best, round(best_new), best_cached, best_seconds)
