"""Rows of the ledger: the use of GPUs and its results by day and by job, and the tokens
of services by day.

Rows are only added up: a commit adds its values to the recorded ones, so no caller
reads them first.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from operator import add
from typing import Final, NamedTuple

from corral.domain.ids import AttemptNumber, JobId, QueueName, UserName
from corral.domain.units import DAY_SECONDS

# of a token of a batch, which uses what others leave; of another one it is 1
BATCH_TOKEN_PRICE: Final = 0.5


class UsageAmounts(NamedTuple):
    """GPU-seconds, joules, money and tokens. All of them only rise. The amounts are
    recorded as a list, so new ones must be added at its end.

    `allocated` is the time for which GPUs were held. Of it, `measured` was observed by
    the sensors of the node; of that, `used` is the integral of utilisation, and `idle`
    the time in which next to no kernel ran. By phases of the attempts: `useful` is the
    time of steps that were kept, `starting` and `saving` are their own phases, and time
    was lost to failures (`failed`), to jobs that took precedence (`preempted`) and to
    requests and limits (`stopped`). `unpriced` was allocated without a known price.
    `money` is by the cluster's own prices in its currency, and `list_money` by the
    prices of clouds, in USD. The two are never added together.

    `requests` are those that replicas of services have answered; `cached_tokens` are
    part of `prompt_tokens`. `fallback_tokens` are those that fallbacks have counted, in
    and out; they are part of no other amount. `batch_tokens` are those of batches, in
    and out; they are part of `prompt_tokens` and `output_tokens`.

    Further phases of attempts: `restoring` is the time in which saves were loaded, and
    `hung` the time in which the ranks should have made steps and did not. `slow` is the
    part of the time of steps for which a slow rank made the others wait; it is not
    subtracted from `useful`. `queued` is the time, for as many GPUs, that jobs waited
    before their first attempt, and `requeued` before the later ones.

    `failures` counts attempts that failed, and `placed_seconds` is the time for which
    attempts were on nodes. `repairs` counts first steps after a failure, and
    `repair_seconds` is the time from the failure to them. `failed_gpus` and `saved_gpus`
    count failures and saves, each as often as its attempt had GPUs.
    """

    allocated_gpu_seconds: float = 0.0
    measured_gpu_seconds: float = 0.0
    used_gpu_seconds: float = 0.0
    idle_gpu_seconds: float = 0.0
    useful_gpu_seconds: float = 0.0
    starting_gpu_seconds: float = 0.0
    saving_gpu_seconds: float = 0.0
    failed_gpu_seconds: float = 0.0
    preempted_gpu_seconds: float = 0.0
    stopped_gpu_seconds: float = 0.0
    unpriced_gpu_seconds: float = 0.0
    energy_joules: float = 0.0
    money: float = 0.0
    list_money: float = 0.0
    requests: float = 0.0
    prompt_tokens: float = 0.0
    cached_tokens: float = 0.0
    output_tokens: float = 0.0
    fallback_tokens: float = 0.0
    batch_tokens: float = 0.0
    restoring_gpu_seconds: float = 0.0
    hung_gpu_seconds: float = 0.0
    slow_gpu_seconds: float = 0.0
    queued_gpu_seconds: float = 0.0
    requeued_gpu_seconds: float = 0.0
    failures: float = 0.0
    placed_seconds: float = 0.0
    repairs: float = 0.0
    repair_seconds: float = 0.0
    failed_gpus: float = 0.0
    saved_gpus: float = 0.0

    def plus(self, other: "UsageAmounts") -> "UsageAmounts":
        return UsageAmounts._make(map(add, self, other))

    def times(self, factor: float) -> "UsageAmounts":
        return UsageAmounts._make(amount * factor for amount in self)

    def __bool__(self) -> bool:
        return any(self)

    @property
    def service_tokens(self) -> float:
        """Tokens in and out, those of fallbacks included. A token of a batch counts by
        its price."""
        tokens = self.prompt_tokens + self.output_tokens + self.fallback_tokens
        return tokens - (1.0 - BATCH_TOKEN_PRICE) * self.batch_tokens


AMOUNTS: Final = UsageAmounts._fields
FIRST_OF_TOKENS: Final = AMOUNTS.index("requests")
LAST_OF_TOKENS: Final = AMOUNTS.index("batch_tokens")


@dataclass(frozen=True, slots=True, kw_only=True)
class UsageRecord:
    """Usage of one attempt on one day (days since 1970, UTC) with GPUs of one type. A
    record without a job is the sum over all attempts of a queue and user; it is kept
    after the records of the attempts. Tokens are in records without a job and without a
    type of GPU: their user is the caller, and their queue that of the service."""

    day: int
    queue: QueueName
    user: UserName
    gpu_type: str
    amounts: UsageAmounts
    job: JobId | None = None
    attempt: AttemptNumber = AttemptNumber(0)
    name: str = ""  # of the job

    @property
    def key(self) -> tuple[str | int, ...]:
        if self.job is None:
            return (self.day, self.queue, self.user, self.gpu_type)
        return (self.job, self.attempt, self.day, self.gpu_type)

    @property
    def has_only_tokens(self) -> bool:
        """Whether it is a record of a service's tokens, without any use of GPUs."""
        tokens = self.amounts[FIRST_OF_TOKENS : LAST_OF_TOKENS + 1]
        before, after = (
            self.amounts[:FIRST_OF_TOKENS],
            self.amounts[LAST_OF_TOKENS + 1 :],
        )
        return any(tokens) and not any(before) and not any(after)

    @property
    def of_day(self) -> "UsageRecord":
        """Return the record without its job and attempt."""
        return UsageRecord(
            day=self.day,
            queue=self.queue,
            user=self.user,
            gpu_type=self.gpu_type,
            amounts=self.amounts,
        )

    def plus(self, other: "UsageRecord") -> "UsageRecord":
        """Return the sum of both records. All other fields are those of `other`."""
        return UsageRecord(
            day=other.day,
            queue=other.queue,
            user=other.user,
            gpu_type=other.gpu_type,
            amounts=self.amounts.plus(other.amounts),
            job=other.job,
            attempt=other.attempt,
            name=other.name,
        )


def day_of(at: float) -> int:
    """Return the day (since 1970, UTC) of a moment of the wall clock."""
    return int(at // DAY_SECONDS)


def by_day(since: float, until: float) -> Iterator[tuple[int, float]]:
    """Yield (day, seconds on that day) for the time between two moments of the wall
    clock."""
    while since < until:
        day = day_of(since)
        span_end = min(until, (day + 1) * DAY_SECONDS)
        yield day, span_end - since
        since = span_end


def summed(rows: Iterable[UsageRecord]) -> dict[tuple[str | int, ...], UsageRecord]:
    """Return the sum of the records of each key."""
    sums: dict[tuple[str | int, ...], UsageRecord] = {}
    for row in rows:
        previous_sum = sums.get(row.key)
        sums[row.key] = row if previous_sum is None else previous_sum.plus(row)
    return sums
