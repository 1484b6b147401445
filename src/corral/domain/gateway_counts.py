"""Counters of gateways that are in the ledger. They are stored in the commit that adds
their tokens to the ledger, so that nothing is added twice or lost."""

from dataclasses import dataclass, field
from typing import Final, NamedTuple

from corral.domain.ids import QueueName, ServiceName, TokenId, UserName
from corral.domain.ledger import BATCH_TOKEN_PRICE, UsageAmounts

KEPT_TOKEN_DAYS: Final = 2
ProcessId = str  # random; each process of a gateway has its own
CountKey = tuple[ProcessId, ServiceName]


class CallerCounts(NamedTuple):
    """Requests and tokens of one user; `cached` are part of `prompt`. `fallback`: tokens
    in and out of fallbacks, which are counted apart. `batch`: tokens in and out of
    batches, which are part of the others."""

    requests: int = 0
    prompt: int = 0
    cached: int = 0
    output: int = 0
    fallback: int = 0
    batch: int = 0

    def plus(self, other: "CallerCounts") -> "CallerCounts":
        return CallerCounts(*(a + b for a, b in zip(self, other, strict=True)))

    def since(self, earlier: "CallerCounts") -> "CallerCounts":
        """Return what is new since an earlier state. Counters only grow: a state that
        is older than the earlier one has nothing new."""
        return CallerCounts(
            *(max(0, a - b) for a, b in zip(self, earlier, strict=True))
        )

    def newest(self, other: "CallerCounts") -> "CallerCounts":
        """Return the newer one of two states of the same counters."""
        return CallerCounts(*map(max, self, other))

    @property
    def tokens(self) -> int:
        """Tokens in and out."""
        return self.prompt + self.output

    @property
    def priced_tokens(self) -> int:
        """Tokens in and out, of which one of a batch counts by its price."""
        return self.tokens - round((1.0 - BATCH_TOKEN_PRICE) * self.batch)

    @property
    def amounts(self) -> UsageAmounts:
        """The same as amounts of the ledger."""
        return UsageAmounts(
            requests=float(self.requests),
            prompt_tokens=float(self.prompt),
            cached_tokens=float(self.cached),
            output_tokens=float(self.output),
            fallback_tokens=float(self.fallback),
            batch_tokens=float(self.batch),
        )


class KeyCount(NamedTuple):
    """Tokens in and out of one API key; one of a batch counts by its price.

    Args:
        total: Sum since the start of the process.
        month: Day (since 1970, UTC) on which the month of the newest ones began.
        in_month: Tokens of that month.
    """

    total: int = 0
    month: int = 0
    in_month: int = 0

    def plus(self, tokens: int, month: int) -> "KeyCount":
        """Return the count with the tokens that were added in this month."""
        in_month = self.in_month if month == self.month else 0
        return KeyCount(self.total + tokens, month, in_month + tokens)


@dataclass(frozen=True, slots=True, kw_only=True)
class GatewayCount:
    """Counters of one process of a gateway for one service, as far as they are in the
    ledger.

    Args:
        queue: Queue of the service when they were added last.
        at: When they were added last (wall clock).
        users: Sums since the start of the process, by user.
        days: Tokens in and out by day (since 1970, UTC), of the newest days; one of a
            batch counts by its price.
        keys: Sums by the id of the API key.
    """

    process: ProcessId
    service: ServiceName
    queue: QueueName
    at: float
    users: dict[UserName, CallerCounts]
    days: tuple[tuple[int, int], ...] = ()
    keys: dict[TokenId, KeyCount] = field(default_factory=dict)

    @property
    def key(self) -> CountKey:
        return (self.process, self.service)

    def tokens_since(self, day: int) -> int:
        """Return the tokens from this day on."""
        return sum(tokens for counted_day, tokens in self.days if counted_day >= day)
