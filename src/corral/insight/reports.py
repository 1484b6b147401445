"""Reports over a period: the ledger's rows, grouped by the requested key."""

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import reduce
from heapq import merge
from itertools import islice
from typing import Final, TypeVar

from corral.domain.ledger import AMOUNTS, UsageAmounts, UsageRecord
from corral.domain.units import HOUR_SECONDS

OWN_MONEY: Final = "money"
LIST_CURRENCY: Final = "USD"
JOULES_PER_KWH: Final = 3.6e6
AT_ONCE: Final = 2000  # rows, in some milliseconds
Value = float | None
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class UsageColumn:
    """Column of a usage report. `of` returns its value for a row; None if unknown.
    `unit` "share" means a number from 0 to 1; OWN_MONEY means the cluster's
    currency."""

    name: str
    unit: str
    of: Callable[[UsageAmounts], Value]


@dataclass(frozen=True, slots=True, kw_only=True)
class UsageRow:
    """Row of a usage report. `name` is the name of a user, a queue or a type of GPU. In
    a report by job, `name` is the job's id, and `more` is the job's name."""

    name: str
    amounts: UsageAmounts
    more: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class UsageReport:
    """Usage report. `rows` are sorted by allocated time, highest first, and `rest`
    counts the rows that were left out. `total` is the sum of all rows, including those
    left out; `days` has the amounts by day since 1970."""

    kind: str
    by: str
    rows: tuple[UsageRow, ...]
    rest: int = 0
    total: UsageAmounts
    days: tuple[tuple[int, UsageAmounts], ...]

    @property
    def columns(self) -> tuple[UsageColumn, ...]:
        return KINDS[self.kind]


def _gpu_hours_getter(name: str) -> Callable[[UsageAmounts], Value]:
    amount_index = AMOUNTS.index(f"{name}_gpu_seconds")
    return lambda one: one[amount_index] / HOUR_SECONDS


def _share_column(name: str, part: str, whole: str) -> UsageColumn:
    above, below = (
        AMOUNTS.index(f"{part_name}_gpu_seconds") for part_name in (part, whole)
    )
    return UsageColumn(
        name, "share", lambda one: one[above] / one[below] if one[below] > 0 else None
    )


def _hours_column(name: str, part: str = "") -> UsageColumn:
    return UsageColumn(name, "GPU-hours", _gpu_hours_getter(part or name))


def other_gpu_seconds(one: UsageAmounts) -> float:
    """Return the allocated GPU-seconds that belong to no named category: the time from
    a rank's end to the node's report of it, and differences between clocks."""
    known_gpu_seconds = useful_gpu_seconds(one) + lost_gpu_seconds(one)
    return max(0.0, one.allocated_gpu_seconds - known_gpu_seconds)


def useful_gpu_seconds(one: UsageAmounts) -> float:
    """Return the GPU-seconds of steps that were kept, without the part for which a slow
    rank made the others wait."""
    return max(0.0, one.useful_gpu_seconds - one.slow_gpu_seconds)


def slow_gpu_seconds(one: UsageAmounts) -> float:
    """Return the GPU-seconds of steps that were kept for which a slow rank made the
    others wait."""
    return min(one.slow_gpu_seconds, one.useful_gpu_seconds)


def lost_gpu_seconds(one: UsageAmounts) -> float:
    """Return the allocated GPU-seconds that produced no useful step: what attempts lost
    at their end, in starts, restores, saves and hangs, and to slow ranks."""
    aborted_gpu_seconds = (
        one.failed_gpu_seconds + one.preempted_gpu_seconds + one.stopped_gpu_seconds
    )
    waiting_gpu_seconds = one.hung_gpu_seconds + slow_gpu_seconds(one)
    return (
        aborted_gpu_seconds
        + waiting_gpu_seconds
        + one.starting_gpu_seconds
        + one.restoring_gpu_seconds
        + one.saving_gpu_seconds
    )


def ettr(one: UsageAmounts) -> Value:
    """Return the effective training time ratio: the useful share of the GPU-seconds for
    which jobs were on nodes, or waited to go on. The wait before a job's first attempt
    does not count. None without any."""
    whole = one.allocated_gpu_seconds + one.requeued_gpu_seconds
    return min(1.0, useful_gpu_seconds(one) / whole) if whole > 0 else None


def mttf_seconds(one: UsageAmounts) -> Value:
    """Return the mean time to failure of a job: time of attempts on nodes for each
    failure. None without a failure."""
    return one.placed_seconds / one.failures if one.failures else None


def mttr_seconds(one: UsageAmounts) -> Value:
    """Return the mean time from a failure to the next step of the job. None if no
    failure was repaired."""
    return one.repair_seconds / one.repairs if one.repairs else None


def _goodput(one: UsageAmounts) -> Value:
    allocated = one.allocated_gpu_seconds
    return useful_gpu_seconds(one) / allocated if allocated > 0 else None


def _in_hours(value: Value) -> Value:
    return None if value is None else value / HOUR_SECONDS


def _wasted_gpu_seconds(one: UsageAmounts) -> float:
    """Return the GPU-seconds lost by attempts or the idle GPU-seconds, whichever is
    more. They are not added, because both may cover the same seconds."""
    return max(lost_gpu_seconds(one) + other_gpu_seconds(one), one.idle_gpu_seconds)


def _wasted_money(one: UsageAmounts, money: float) -> Value:
    allocated = one.allocated_gpu_seconds
    return (
        money * min(1.0, _wasted_gpu_seconds(one) / allocated)
        if allocated > 0
        else None
    )


def not_used_gpu_seconds(one: UsageAmounts) -> float:
    """Return the measured time minus the integral of utilisation. For example, a GPU
    that is evenly 40 % busy is 60 % unused."""
    return max(0.0, one.measured_gpu_seconds - one.used_gpu_seconds)


def _not_used_share(one: UsageAmounts) -> Value:
    measured = one.measured_gpu_seconds
    return not_used_gpu_seconds(one) / measured if measured > 0 else None


def _not_used_money(one: UsageAmounts, money: float) -> Value:
    """Return the cost of unused time, for the measured part only: time that was not
    measured counts neither as used nor as unused."""
    allocated = one.allocated_gpu_seconds
    if allocated <= 0 or one.measured_gpu_seconds <= 0:
        return None
    return money * min(1.0, not_used_gpu_seconds(one) / allocated)


_ALLOCATED: Final = _hours_column("allocated")
TOKENS: Final = (
    UsageColumn("requests", "", lambda one: one.requests),
    UsageColumn("tokens in", "", lambda one: one.prompt_tokens),
    UsageColumn("cached", "", lambda one: one.cached_tokens),
    UsageColumn("tokens out", "", lambda one: one.output_tokens),
)
_USEFUL: Final = UsageColumn(
    "useful", "GPU-hours", lambda one: useful_gpu_seconds(one) / HOUR_SECONDS
)
_LOST: Final = (
    _hours_column("start-up", "starting"),
    _hours_column("restores", "restoring"),
    _hours_column("saves", "saving"),
    _hours_column("hangs", "hung"),
    UsageColumn(
        "slow ranks", "GPU-hours", lambda one: slow_gpu_seconds(one) / HOUR_SECONDS
    ),
    _hours_column("failures", "failed"),
    _hours_column("preemptions", "preempted"),
    _hours_column("stops", "stopped"),
    UsageColumn(
        "other", "GPU-hours", lambda one: other_gpu_seconds(one) / HOUR_SECONDS
    ),
)
KINDS: Final[Mapping[str, tuple[UsageColumn, ...]]] = {
    "usage": (
        _ALLOCATED,
        _hours_column("used"),
        _share_column("utilisation", "used", "measured"),
        UsageColumn("not used", "share", _not_used_share),
        _hours_column("idle"),
        _share_column("measured", "measured", "allocated"),
        UsageColumn("energy", "kWh", lambda one: one.energy_joules / JOULES_PER_KWH),
        *TOKENS,
    ),
    "waste": (_ALLOCATED, _hours_column("idle"), *_LOST),
    "cost": (
        _ALLOCATED,
        UsageColumn("money", OWN_MONEY, lambda one: one.money),
        UsageColumn("wasted", OWN_MONEY, lambda one: _wasted_money(one, one.money)),
        UsageColumn("not used", OWN_MONEY, lambda one: _not_used_money(one, one.money)),
        UsageColumn("list price", LIST_CURRENCY, lambda one: one.list_money),
        UsageColumn(
            "wasted of it",
            LIST_CURRENCY,
            lambda one: _wasted_money(one, one.list_money),
        ),
        UsageColumn(
            "not used of it",
            LIST_CURRENCY,
            lambda one: _not_used_money(one, one.list_money),
        ),
        UsageColumn("without a price", "GPU-hours", _gpu_hours_getter("unpriced")),
        UsageColumn("energy", "kWh", lambda one: one.energy_joules / JOULES_PER_KWH),
        *TOKENS,
    ),
    "goodput": (
        _ALLOCATED,
        _USEFUL,
        UsageColumn("goodput", "share", _goodput),
        *_LOST,
        _hours_column("queued"),
        _hours_column("queued again", "requeued"),
        UsageColumn("ETTR", "share", ettr),
        UsageColumn("failed attempts", "", lambda one: one.failures),
        UsageColumn("MTTF", "h", lambda one: _in_hours(mttf_seconds(one))),
        UsageColumn("MTTR", "s", mttr_seconds),
    ),
}
WITH_TOKENS: Final = frozenset({"usage", "cost"})
BY: Final[Mapping[str, Callable[[UsageRecord], str]]] = {
    "queue": lambda one: one.queue,
    "user": lambda one: one.user,
    "gpu-type": lambda one: one.gpu_type,
    "job": lambda one: one.job or "",
}


def report(
    kind: str, by: str, accounts: Iterable[UsageRecord], limit: int = sys.maxsize
) -> UsageReport:
    """Sum the ledger's rows into a report. Users and queues without any use of GPUs are
    in it if it shows their tokens.

    Args:
        kind: one of KINDS.
        by: the key to group by, one of BY.
        limit: maximum number of rows.

    Raises: KeyError for another `kind` or `by`.
    """
    name_of = BY[by]
    shows_tokens = kind in WITH_TOKENS and by != "gpu-type"
    sums: dict[str, UsageAmounts] = {}
    days: dict[int, UsageAmounts] = {}
    names: dict[str, str] = {}
    for account in accounts:
        if not shows_tokens and account.has_only_tokens:
            continue
        key, day, own_amounts = name_of(account), account.day, account.amounts
        sums[key] = sums[key].plus(own_amounts) if key in sums else own_amounts
        days[day] = days[day].plus(own_amounts) if day in days else own_amounts
        if by == "job":
            names[key] = account.name
    rows, rest = _most_first(_build_usage_rows(sums, names), limit)
    return UsageReport(
        kind=kind,
        by=by,
        rows=tuple(rows),
        rest=rest,
        total=reduce(UsageAmounts.plus, days.values(), UsageAmounts()),
        days=tuple((day, days[day]) for day in sorted(days)),
    )


# Python goes through neither a sort nor the end of a long list without keeping all
# other threads from going on: of 100,000 rows each for 0.1 s. So they are sorted, and
# let go, some at a time.


def drained(rows: list[T]) -> Iterator[T]:
    """Yield all rows, the last first, and remove each from the list."""
    while rows:
        yield rows.pop()


def _build_usage_rows(
    sums: dict[str, UsageAmounts], names: Mapping[str, str]
) -> Iterator[UsageRow]:
    while sums:
        name, own_amounts = sums.popitem()
        yield UsageRow(name=name, amounts=own_amounts, more=names.get(name, ""))


def _most_first(rows: Iterator[UsageRow], limit: int) -> tuple[list[UsageRow], int]:
    """Return the `limit` rows with the most allocated time, and the number of remaining
    rows."""

    def place(row: UsageRow) -> tuple[float, str]:
        return -row.amounts.allocated_gpu_seconds, row.name

    sorted_chunks = []
    while sorted_chunk := sorted(islice(rows, AT_ONCE), key=place):
        sorted_chunks.append(drained(sorted_chunk[::-1]))
    usage_rows = merge(*sorted_chunks, key=place)
    del sorted_chunk
    return list(islice(usage_rows, limit)), sum(1 for _ in usage_rows)
