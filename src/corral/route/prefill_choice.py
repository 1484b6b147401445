"""Choice of two replicas for one request: one computes its prompt, the other generates
its answer. It pays where the prompt would hold up the streams of the second one for longer
than the first one, and the way of the KV cache from there, take."""

from collections.abc import Collection, Sequence
from math import inf
from typing import Final, NamedTuple

from corral.route.choice import ReplicaChoice, ReplicaState, pick
from corral.route.first_token_deadline import (
    LATENESS,
    LEAST_SECONDS,
    FirstTokenDeadline,
)
from corral.route.learned_rates import (
    USUAL_PREFILL_TOKENS,
    LearnedLine,
    LearnedRates,
)

LEAST_NEW_TOKENS: Final = 64  # below these, no two requests are worth their overhead
# of the time of prefill that a transfer takes, before one was seen
FIRST_TRANSFER_SHARE: Final = 0.05
# of the requests with many new tokens for which it would not pay: what was learned in bad
# times is learned again
REQUESTS_A_TRIAL: Final = 100
# transfers from one replica, after which it gets no prompts for a while
FAILURES_IN_A_ROW: Final = 2
PAUSE_SECONDS: Final = 10.0  # doubled with each failure more
LONGEST_PAUSE_SECONDS: Final = 300.0


class LearnedTransfer:
    """Seconds from sending a request whose prompt another replica has computed to its
    first token, learned by the number of tokens whose cache is sent."""

    __slots__ = ("_line",)

    def __init__(self) -> None:
        self._line: LearnedLine | None = None

    def seconds(self, tokens: float, rates: LearnedRates) -> float:
        """Return the seconds for this number of tokens.

        Args:
            rates: Speed of the receiving replica, from which the first values follow.
        """
        line = self._line
        if line is None:
            share = FIRST_TRANSFER_SHARE * rates.prefill_seconds(tokens)
            return rates.overhead_seconds + share
        return line.base + line.slope * tokens

    def observe(self, tokens: float, seconds: float, rates: LearnedRates) -> None:
        """Learn from a transfer; arguments as for `seconds`."""
        if self._line is None:
            self._line = LearnedLine(
                rates.overhead_seconds,
                FIRST_TRANSFER_SHARE * rates.seconds_per_token,
                USUAL_PREFILL_TOKENS,
            )
        self._line.observe(tokens, seconds)


class RoutedPrompt(NamedTuple):
    """Prompt of a request, as the choice of replicas needs it.

    Attributes:
        tokens: estimated tokens.
        hashes: block hashes.
        tokens_per_block: mean tokens of a block.
        output_tokens: expected tokens of the answer.
    """

    tokens: int
    hashes: Sequence[int]
    tokens_per_block: float
    output_tokens: float

    def new_at(self, replica: ReplicaState) -> float:
        """Return the tokens that a replica does not have cached; at least 1."""
        cached = replica.index.count_cached(self.hashes)
        return max(1.0, self.tokens - cached * self.tokens_per_block)


class RoleChoice(NamedTuple):
    """Replicas for the two parts of a request, and the prices that are compared.

    Attributes:
        prefill: replica for the prompt, and the tokens that are new there.
        decode: replica for the answer, and the tokens whose cache is sent there.
        prefill_seconds: time until the prompt is computed.
        seconds: all seconds with both replicas.
        alone_seconds: all seconds if one replica does both, with those for which its
            streams wait.
    """

    prefill: ReplicaChoice
    decode: ReplicaChoice
    prefill_seconds: float
    seconds: float
    alone_seconds: float

    @property
    def pays(self) -> bool:
        """Whether the request is done sooner, or delays others less, on two replicas."""
        return (
            self.decode.new_tokens >= LEAST_NEW_TOKENS
            and self.seconds < self.alone_seconds
        )


def pick_roles(
    alone: ReplicaChoice,
    decode: Sequence[ReplicaState],
    prefill: Sequence[ReplicaState],
    prompt: RoutedPrompt,
    transfer: LearnedTransfer,
    *,
    exclude: Collection[str] = (),
    tie: int = 0,
    now: float = 0.0,
) -> RoleChoice | None:
    """Return the best two replicas for a request; None if none can take its prompt.

    Args:
        alone: choice of the replica that would do both parts.
        decode: replicas that may generate the answer, the one of `alone` among them.
        prefill: replicas that may compute the prompt.
        exclude: names of replicas that must not get the request.
        tie: number that chooses among equals.
        now: time to which `ejected_until` is compared.
    """
    first = pick(
        prefill,
        prompt.tokens,
        prompt.hashes,
        prompt.tokens_per_block,
        0.0,
        exclude=exclude,
        tie=tie,
        now=now,
    )
    if first is None:
        return None
    state = first.replica
    rates = state.rates
    prefill_seconds = rates.overhead_seconds + rates.prefill_seconds(
        state.pending_tokens + first.new_tokens
    )
    second = alone.replica
    second_seconds = _answer_seconds(second, prompt, transfer)
    for replica in decode:
        if _is_free(replica, exclude, now):
            seconds = _answer_seconds(replica, prompt, transfer)
            if seconds < second_seconds:
                second = replica
                second_seconds = seconds
    new_tokens = round(prompt.new_at(second))
    return RoleChoice(
        first,
        ReplicaChoice(second, new_tokens, 0, second_seconds),
        prefill_seconds,
        prefill_seconds + second_seconds,
        _alone_seconds(alone.replica, prompt),
    )


def _is_free(replica: ReplicaState, exclude: Collection[str], now: float) -> bool:
    return (
        (replica.limit is None or replica.in_flight < replica.limit)
        and replica.ejected_until <= now
        and replica.name not in exclude
    )


def _answer_seconds(
    replica: ReplicaState, prompt: RoutedPrompt, transfer: LearnedTransfer
) -> float:
    """Return the seconds for an answer whose prompt another replica has computed."""
    rates = replica.rates
    return (
        rates.prefill_seconds(replica.pending_tokens)
        + transfer.seconds(prompt.new_at(replica), rates)
        + prompt.output_tokens * rates.itl_seconds(replica.running + 1)
    )


def _alone_seconds(replica: ReplicaState, prompt: RoutedPrompt) -> float:
    """Return the seconds for both parts at one replica. Each stream there waits while it
    computes the prompt."""
    new = prompt.new_at(replica)
    return replica.rates.request_seconds(
        replica.pending_tokens + new, prompt.output_tokens, replica.running + 1
    ) + replica.running * replica.rates.prefill_seconds(new)


class _FailedTransfers:
    """Transfers from one prefill replica that have failed since the last good one."""

    __slots__ = ("count", "paused_until")

    def __init__(self) -> None:
        self.count = 0
        self.paused_until = 0.0


class PrefillRule:
    """When the prompts of a service are computed apart, by what was learned.

    Attributes:
        transfer: Learned time of transfers.
        first_tokens: Times of prompts at prefill replicas.
    """

    __slots__ = ("_failed", "_unworthy", "first_tokens", "transfer")

    def __init__(self) -> None:
        self.transfer = LearnedTransfer()
        self.first_tokens = FirstTokenDeadline()
        self._unworthy = 0
        self._failed: dict[str, _FailedTransfers] = {}

    def note_transfer(self, prefill: str, now: float, *, has_failed: bool) -> None:
        """Count a transfer from a prefill replica."""
        if not has_failed:
            self._failed.pop(prefill, None)
            return
        failed = self._failed.setdefault(prefill, _FailedTransfers())
        failed.count += 1
        doublings = failed.count - FAILURES_IN_A_ROW
        if doublings >= 0:
            seconds = min(
                LONGEST_PAUSE_SECONDS, PAUSE_SECONDS * 2.0 ** min(doublings, 9)
            )
            failed.paused_until = now + seconds

    def paused(self, now: float) -> list[str]:
        """Return the prefill replicas that get no prompts, because transfers from there
        have failed."""
        return [
            name for name, failed in self._failed.items() if failed.paused_until > now
        ]

    def admits(self, choice: RoleChoice) -> bool:
        """Return whether the request goes to two replicas: it pays, or it is one of
        REQUESTS_A_TRIAL that show whether it would."""
        if choice.pays:
            return True
        if choice.decode.new_tokens < LEAST_NEW_TOKENS:
            return False
        self._unworthy += 1
        return self._unworthy % REQUESTS_A_TRIAL == 0

    def late_seconds(self, expected_seconds: float, most: float = inf) -> float:
        """Return the seconds after which a prompt at a prefill replica is late.

        Args:
            most: Seconds that leave time for the other replica.
        """
        seconds = self.first_tokens.seconds(expected_seconds)
        if seconds is None:
            seconds = max(LEAST_SECONDS, LATENESS * expected_seconds)
        return min(seconds, most)

    def late_transfer_seconds(
        self, tokens: int, replica: ReplicaState, output_tokens: int = 1
    ) -> float:
        """Return the seconds after which an answer is so late that its transfer has
        failed.

        Args:
            tokens: Tokens whose cache is sent.
            replica: Replica that receives it.
            output_tokens: Most tokens before the first byte of the answer.
        """
        rates = replica.rates
        expected_seconds = self.transfer.seconds(tokens, rates)
        expected_seconds += output_tokens * rates.itl_seconds(replica.running + 1)
        return max(LEAST_SECONDS, LATENESS * expected_seconds)
