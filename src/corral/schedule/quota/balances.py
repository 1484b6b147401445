"""Balances of a pass: what each queue and user holds and may still take. They change
with each placement."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from contextlib import contextmanager
from copy import copy
from dataclasses import dataclass, replace

from corral.domain.ids import QueueName, UserName
from corral.domain.queue import ANY_TYPE, Queue
from corral.domain.queue_tree import QueueTree
from corral.domain.resources import Shape
from corral.domain.units import MILLIS_PER_GPU
from corral.schedule.quota.entitlements import (
    CLUSTER,
    FREE,
    Column,
    borrowed,
    change,
    columns_of,
    is_within,
    refused_by,
)
from corral.schedule.quota.fair_share import (
    ResourceAmounts,
    accrued_seconds,
    constant_seconds,
    dominant,
)
from corral.schedule.waiting import Waiting

Leaf = tuple[QueueName, UserName]


@dataclass(frozen=True, slots=True, kw_only=True)
class QuotaHolding:
    """What one job of a user holds, charged to a queue: thousandths of GPUs by type,
    and the total amounts of resources."""

    queue: QueueName
    user: UserName
    gpu_millis: tuple[tuple[str, int], ...] = ()
    amounts: ResourceAmounts = ResourceAmounts()
    preemptible: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class LimitRefusal:
    """The limit that forbids a job more resources. It is a limit of a queue, of the
    whole cluster (`queue` is None), or of the job's user (`user` is set)."""

    queue: QueueName | None
    user: UserName | None = None


class Standing:
    """Quota and fair share of all queues, updated as gangs take seats. `past`: earlier
    use, in the unit of current holdings.

    The holdings of preemptible jobs belong to no queue. They count for the cluster as a
    whole, and as borrowed by each queue above the job. `owing`: queues that have no
    quota of their own until they have paid back GPU time.
    """

    def __init__(
        self,
        tree: QueueTree,
        *,
        capacity: ResourceAmounts,
        kinds: Iterable[str] = (),
        past: Mapping[Leaf, ResourceAmounts] | None = None,
        holding: Sequence[QuotaHolding] = (),
        stripped: frozenset[QueueName] = frozenset(),
        others: Iterable[QueueName] = (),
        owing: Set[QueueName] = frozenset(),
    ) -> None:
        self.tree = tree
        self.owing = owing
        self.capacity = capacity
        self.version = 0  # another one after each change
        self._changes = 0
        names = {
            *others,
            *(quota_holding.queue for quota_holding in holding),
            *(queue for queue, _ in past or ()),
        }
        self.columns, self.rows = columns_of(
            tree,
            kinds={
                *kinds,
                *(
                    kind
                    for quota_holding in holding
                    for kind, _ in quota_holding.gpu_millis
                ),
            },
            capacity_millis=round(capacity.gpus * 1000),
            stripped=stripped,
            others=names,
        )
        self._none: Column = [0] * self.columns.kinds
        self._past: dict[QueueName | Leaf, ResourceAmounts] = {}
        self._held: dict[QueueName | Leaf, ResourceAmounts] = {}
        # thousandths held by preemptible jobs below it
        self._lent: Counter[QueueName] = Counter()
        # thousandths of GPUs, at each queue of its path
        self._of_user: Counter[Leaf] = Counter()
        self.has_bounds = any(
            queue.nominal
            or queue.most_per_user_millis is not None
            or queue.borrow_limit_millis is not None
            for queue in tree.queues
        )
        self._has_types = any(
            kind != ANY_TYPE for queue in tree.queues for kind, _ in queue.nominal
        )
        for leaf, amounts in (past or {}).items():
            self._add_amounts(self._past, leaf, amounts, 1.0)
        for quota_holding in holding:
            self.take(quota_holding)

    def with_past(
        self, past: Mapping[Leaf, ResourceAmounts], owing: Set[QueueName]
    ) -> "Standing":
        """Return an independent copy of this standing, with this past use and these
        owing queues instead of its own."""
        standing_copy = copy(self)
        standing_copy.owing = owing
        held_columns, inner = list(self.columns.held), list(self.columns.inner)
        standing_copy.columns = self.columns._replace(held=held_columns, inner=inner)
        standing_copy._held, standing_copy._past = dict(self._held), {}
        standing_copy._lent, standing_copy._of_user = (
            self._lent.copy(),
            self._of_user.copy(),
        )
        for leaf, amounts in past.items():
            standing_copy._add_amounts(standing_copy._past, leaf, amounts, 1.0)
        return standing_copy

    # -- what changes ----------------------------------------------------------------------------

    def take(self, one: QuotaHolding) -> int:
        """Count the holding as held. Return how many more thousandths of a GPU the
        queue borrows now."""
        borrowed_before = self.borrowed_millis(one.queue)
        self._apply_holding(one, 1)
        return self.borrowed_millis(one.queue) - borrowed_before

    def give(self, one: QuotaHolding) -> None:
        """Count the holding as returned."""
        self._apply_holding(one, -1)

    @contextmanager
    def pretending(self) -> Iterator[None]:
        """Run a trial: within the context, the caller takes and gives holdings, and
        must undo all of that. Afterwards the version is as before."""
        version = self.version
        try:
            yield
        finally:
            self.version = version

    def _apply_holding(self, one: QuotaHolding, sign: int) -> None:
        self._changes += 1
        self.version = self._changes
        column = self._gpu_column(one.gpu_millis)
        change(
            self.columns,
            CLUSTER if one.preemptible else self.row(one.queue),
            column,
            sign,
        )
        millis = sign * sum(column)
        for queue in self.tree.path(one.queue):
            self._of_user[queue.name, one.user] += millis
            if one.preemptible:
                self._lent[queue.name] += millis
        self._add_amounts(
            self._held, (one.queue, one.user), one.amounts.in_steps(), float(sign)
        )

    def _add_amounts(
        self,
        book: dict[QueueName | Leaf, ResourceAmounts],
        leaf: Leaf,
        amounts: ResourceAmounts,
        times: float,
    ) -> None:
        names: list[QueueName | Leaf] = [
            queue.name for queue in self.tree.path(leaf[0])
        ]
        for name in (*names, leaf):
            book[name] = book.get(name, ResourceAmounts()).plus(amounts, times)

    def pass_time(self, seconds: float) -> None:
        """Let past use decay for `seconds`, in which the present holdings are used and
        added to it."""
        decay_fraction = accrued_seconds(seconds, self.tree.half_life_seconds)
        decay_fraction /= constant_seconds(self.tree.half_life_seconds)
        for name in {**self._past, **self._held} if decay_fraction else ():
            left_amounts = ResourceAmounts().plus(
                self._past.get(name, ResourceAmounts()), 1.0 - decay_fraction
            )
            self._past[name] = left_amounts.plus(
                self._held.get(name, ResourceAmounts()), decay_fraction
            )

    # -- queries

    @property
    def past(self) -> dict[Leaf, ResourceAmounts]:
        """Return the past use of each user of a queue up to now, as input for another
        standing."""
        return {
            leaf: past for leaf, past in self._past.items() if isinstance(leaf, tuple)
        }

    def row(self, queue: QueueName) -> int:
        return self.rows.row_of[queue]

    def held_millis(self, queue: QueueName) -> int:
        return self.lasting_millis(queue) + self._lent[queue]

    def lasting_millis(self, queue: QueueName) -> int:
        """Return how many thousandths of GPUs the queue's jobs hold, without
        preemptible jobs."""
        first_column = self.row(queue) * self.columns.kinds
        return sum(self.columns.held[first_column : first_column + self.columns.kinds])

    def own_millis(self, queue: QueueName) -> int:
        """Return the queue's own quota, in thousandths of a GPU; 0 if its budget is
        spent."""
        return self.columns.total[self.row(queue)]

    def borrowed_millis(self, queue: QueueName) -> int:
        """Return what the queue holds beyond its own quota, in thousandths of a GPU."""
        return self.over_millis(queue) + self._lent[queue]

    def over_millis(self, queue: QueueName) -> int:
        """Return what the queue holds beyond its own quota without its preemptible
        jobs, in thousandths of a GPU."""
        return borrowed(self.columns, self.row(queue), self._none, 0)

    def of_user_millis(self, queue: QueueName, user: UserName) -> int:
        return self._of_user[queue, user]

    def is_own(self, queue: QueueName, gpu_millis: Iterable[tuple[str, int]]) -> bool:
        """Return whether the queue could hold these GPUs in addition without borrowing."""
        column = self._gpu_column(gpu_millis)
        return not borrowed(self.columns, self.row(queue), column, sum(column))

    def is_within(
        self, queue: QueueName, gpu_millis: Iterable[tuple[str, int]], level: QueueName
    ) -> bool:
        """Return whether `level`, the queue or a queue above it, can hold this much
        more without borrowing."""
        return is_within(
            self.columns, self.row(queue), self._gpu_column(gpu_millis), self.row(level)
        )

    def refusal(
        self,
        queue: QueueName,
        user: UserName,
        gpu_millis: Iterable[tuple[str, int]],
        *,
        preemptible: bool = False,
    ) -> LimitRefusal | None:
        """Return the limit by which the user may not take these GPUs in this queue;
        None if allowed."""
        column = self._gpu_column(gpu_millis)
        millis = sum(column)
        if not millis:
            return None
        row = self.row(queue)
        for ancestor in self.tree.path(queue):
            user_limit = ancestor.most_per_user_millis
            if (
                user_limit is not None
                and self._of_user[ancestor.name, user] + millis > user_limit
            ):
                return LimitRefusal(queue=ancestor.name, user=user)
            if (preemptible or self._lent[ancestor.name]) and self._is_over(
                ancestor, column, preemptible
            ):
                return LimitRefusal(queue=ancestor.name)
        row = CLUSTER if preemptible else row
        if row == CLUSTER:
            return LimitRefusal(queue=None) if self._nothing_left(millis) else None
        row = refused_by(self.columns, row, column)
        if row == FREE:
            return None
        return LimitRefusal(queue=None if row == CLUSTER else self.rows.names[row])

    def _is_over(self, queue: Queue, asked: Column, preemptible: bool) -> bool:
        """Return whether the queue would borrow more than its limit if it also held
        `asked`. Its preemptible jobs count as borrowed."""
        row, lent = self.row(queue.name), self._lent[queue.name]
        if preemptible:
            borrows = self.over_millis(queue.name) + sum(asked)
        else:
            borrows = borrowed(self.columns, row, asked, sum(asked))
        return borrows > 0 and borrows + lent > self.columns.borrow_limit[row]

    def _nothing_left(self, millis: int) -> bool:
        """Return whether a preemptible job would take capacity that other queues keep
        for themselves. A cluster that is simply full does not count as refusal."""
        columns = self.columns
        held_millis = sum(columns.held[: columns.kinds])
        total = columns.total[CLUSTER]
        return columns.inner[CLUSTER] + millis > total >= held_millis + millis

    def allowed(
        self, gang: Waiting, shape: Shape, kinds: Sequence[str]
    ) -> Iterator[Shape]:
        """Yield the variants of a shape that the gang's queue may hold now. They are
        the shape itself or, if queues have typed GPUs and the shape takes any type, the
        shape once for each GPU type. Types that the queue owns come first."""
        typed = self.forms(shape, kinds)
        if len(typed) > 1:
            is_own_shape = {
                shape: self.is_own(gang.queue, self.asked_by(gang, shape, kinds))
                for shape in typed
            }
            for typed_shape in sorted(typed, key=lambda one: not is_own_shape[one]):
                if self._can_hold_shape(gang, typed_shape, kinds):
                    yield typed_shape
        elif self._can_hold_shape(gang, shape, kinds):
            yield shape

    def forms(self, shape: Shape, kinds: Sequence[str]) -> Sequence[Shape]:
        """Return the variants of a shape: the shape once for each GPU type if queues
        have typed GPUs and the shape takes any type, else the shape alone."""
        resources = shape.resources
        if resources.gpu_type is not None or not self._has_types or len(kinds) < 2:
            return (shape,)
        if not resources.gpu_millis:
            return (shape,)
        return [
            Shape(nodes=shape.nodes, resources=replace(resources, gpu_type=k))
            for k in kinds
        ]

    def _can_hold_shape(
        self, gang: Waiting, shape: Shape, kinds: Sequence[str]
    ) -> bool:
        asked_millis = self.asked_by(gang, shape, kinds)
        refused = self.refusal(
            gang.queue, gang.user, asked_millis, preemptible=gang.preemptible
        )
        return refused is None

    def millis_of(
        self, shape: Shape, kinds: Sequence[str]
    ) -> tuple[tuple[str, int], ...]:
        """Return the GPUs of a shape by type, in thousandths. A shape that takes any
        type counts as the first of `kinds`."""
        kind = shape.resources.gpu_type or (kinds[0] if kinds else ANY_TYPE)
        return ((kind, shape.gpu_millis),) if shape.gpu_millis else ()

    def asked_by(
        self, gang: Waiting, shape: Shape, kinds: Sequence[str]
    ) -> tuple[tuple[str, int], ...]:
        """Return the GPUs of a gang's shape by type, in thousandths.

        A gang on exclusive nodes is charged all GPUs of the nodes, as many as the
        smallest sufficient nodes have.
        """
        asked_millis = self.millis_of(shape, kinds)
        whole_millis = shape.nodes * gang.whole_gpus * MILLIS_PER_GPU
        if whole_millis <= shape.gpu_millis:
            return asked_millis
        kind = asked_millis[0][0] if asked_millis else kinds[0] if kinds else ANY_TYPE
        return ((kind, whole_millis),)

    def share(self, queue: QueueName) -> float:
        """Return the queue's share of the resource of which it has used most, past and
        present, divided by its weight."""
        return dominant(self._used(queue), self.capacity, self.tree.queue(queue).weight)

    def user_share(self, leaf: Leaf) -> float:
        """Return one user's share of the resource of which the user has used most in
        the queue, past and present."""
        return dominant(self._used(leaf), self.capacity, 1.0)

    def _used(self, name: QueueName | Leaf) -> ResourceAmounts:
        return self._past.get(name, ResourceAmounts()).plus(
            self._held.get(name, ResourceAmounts())
        )

    def gives_back(self, queue: QueueName) -> bool:
        """Return whether other queues may reclaim a part of what the queue holds."""
        return queue in self.owing or self.over_millis(queue) > 0

    def is_beyond(self, queue: QueueName) -> bool:
        """Return whether the queue has no unused GPUs of its own left, or owes GPU
        time."""
        row = self.row(queue)
        return queue in self.owing or self.columns.inner[row] >= self.columns.total[row]

    def _gpu_column(self, gpu_millis: Iterable[tuple[str, int]]) -> Column:
        """Return the GPUs as amounts by type, in column order; an unknown type counts
        as the first."""
        column = [0] * self.columns.kinds
        for kind, millis in gpu_millis:
            if column:
                column[self.rows.kind_of.get(kind, 0)] += millis
        return column
