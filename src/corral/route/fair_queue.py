"""Queue of requests that no replica can take yet: strict classes, and deficit round robin
between owners within a class."""

from collections import deque
from enum import IntEnum
from heapq import heapify, heappop, heappush
from math import ceil
from typing import Final, Generic, TypeVar

QUANTUM_TOKENS: Final = 1024
REMOVED_BEFORE_CLEANUP: Final = 1024

Item = TypeVar("Item")


class PriorityClass(IntEnum):
    """Class of a request; a smaller number goes first."""

    HIGH = 0
    NORMAL = 1
    LOW = 2
    BATCH = 3


class QueuedItem(Generic[Item]):
    """Place of an item in the queue."""

    __slots__ = (
        "deadline",
        "is_expired",
        "is_waiting",
        "item",
        "number",
        "owner",
        "priority",
        "size_bytes",
        "tokens",
    )

    def __init__(
        self,
        item: Item,
        owner: str,
        priority: PriorityClass,
        tokens: int,
        deadline: float,
        size_bytes: int,
        number: int,
    ) -> None:
        self.item = item
        self.owner = owner
        self.priority = priority
        self.tokens = tokens
        self.deadline = deadline
        self.size_bytes = size_bytes
        self.number = number
        self.is_waiting = True
        self.is_expired = False

    def __lt__(self, other: "QueuedItem[Item]") -> bool:
        return (self.deadline, self.number) < (other.deadline, other.number)


class _OwnerQueue(Generic[Item]):
    """Items of one owner in one class, oldest first."""

    __slots__ = ("deficit", "items", "waiting")

    def __init__(self) -> None:
        self.deficit = 0
        self.items: deque[QueuedItem[Item]] = deque()
        self.waiting = 0

    def head(self) -> QueuedItem[Item]:
        while not self.items[0].is_waiting:
            self.items.popleft()
        return self.items[0]

    def newest(self) -> QueuedItem[Item]:
        while not self.items[-1].is_waiting:
            self.items.pop()
        return self.items[-1]


class _ClassQueue(Generic[Item]):
    """Deficit round robin between the owners of one class."""

    __slots__ = ("owners", "round")

    def __init__(self) -> None:
        self.owners: dict[str, _OwnerQueue[Item]] = {}
        self.round: deque[str] = deque()  # owners; the first one is served

    def push(self, queued: QueuedItem[Item]) -> None:
        queue = self.owners.get(queued.owner)
        if queue is None:
            queue = self.owners[queued.owner] = _OwnerQueue()
            self.round.append(queued.owner)
        queue.items.append(queued)
        queue.waiting += 1

    def remove(self, queued: QueuedItem[Item]) -> None:
        """Count an item that no longer waits; an owner without items leaves the round."""
        queue = self.owners[queued.owner]
        queue.waiting -= 1
        if not queue.waiting:
            del self.owners[queued.owner]
            self.round.remove(queued.owner)
        elif len(queue.items) > 2 * queue.waiting + REMOVED_BEFORE_CLEANUP:
            queue.items = deque(other for other in queue.items if other.is_waiting)

    def next(self) -> QueuedItem[Item] | None:
        """Return the item that is served next; the caller removes it."""
        if not self.round:
            return None
        for _ in range(len(self.round)):
            queue = self.owners[self.round[0]]
            queued = queue.head()
            if queued.tokens <= queue.deficit:
                queue.deficit -= queued.tokens
                return queued
            queue.deficit += QUANTUM_TOKENS
            self.round.rotate(-1)
        self._skip_rounds()
        return self.next()

    def _skip_rounds(self) -> None:
        """Give each owner the quanta of the rounds in which none can be served."""
        rounds = min(
            ceil((queue.head().tokens - queue.deficit) / QUANTUM_TOKENS)
            for queue in self.owners.values()
        )
        if rounds > 1:
            for queue in self.owners.values():
                queue.deficit += (rounds - 1) * QUANTUM_TOKENS


class FairQueue(Generic[Item]):
    """Bounded queue with deadlines.

    Args:
        most_items: most waiting items.
        most_bytes: most bytes of waiting items.
    """

    __slots__ = (
        "_bytes",
        "_classes",
        "_deadlines",
        "_expired",
        "_number",
        "_waiting",
        "most_bytes",
        "most_items",
    )

    def __init__(self, most_items: int = 1000, most_bytes: int = 64 << 20) -> None:
        self.most_items = most_items
        self.most_bytes = most_bytes
        self._classes: tuple[_ClassQueue[Item], ...] = tuple(
            _ClassQueue() for _ in PriorityClass
        )
        self._deadlines: list[QueuedItem[Item]] = []
        self._expired: list[QueuedItem[Item]] = []
        self._number = 0
        self._waiting = 0
        self._bytes = 0

    def __len__(self) -> int:
        return self._waiting

    @property
    def size_bytes(self) -> int:
        """Bytes of the waiting items."""
        return self._bytes

    def waiting_of(self, priority_class: PriorityClass) -> int:
        """Number of items of a class that wait."""
        owners = self._classes[priority_class].owners.values()
        return sum(queue.waiting for queue in owners)

    def push(
        self,
        owner: str,
        priority_class: PriorityClass,
        tokens: int,
        item: Item,
        now: float,
        deadline: float,
        size_bytes: int = 0,
    ) -> QueuedItem[Item] | None:
        """Queue an item. Return None if the queue is full or the deadline has passed."""
        is_full = self._waiting >= self.most_items
        if is_full or self._bytes + size_bytes > self.most_bytes or deadline <= now:
            return None
        self._number += 1
        queued = QueuedItem(
            item, owner, priority_class, tokens, deadline, size_bytes, self._number
        )
        self._classes[priority_class].push(queued)
        heappush(self._deadlines, queued)
        self._waiting += 1
        self._bytes += size_bytes
        return queued

    def displace(self, owner: str, priority_class: PriorityClass) -> Item | None:
        """Remove and return the item that makes room for one of this owner in a full
        queue: the newest of the owner with the most waiting items in the lowest class.
        None if that class is more important, or if that owner has no more items than
        this one would have. So places go by owners, not by how often each asks."""
        for lowest_class in reversed(PriorityClass):
            owners = self._classes[lowest_class].owners
            if lowest_class < priority_class or not owners:
                continue
            longest = max(owners, key=lambda name: owners[name].waiting)
            own_items = owners[owner].waiting if owner in owners else 0
            is_same_class = lowest_class == priority_class
            if is_same_class and owners[longest].waiting <= own_items + 1:
                return None
            queued = owners[longest].newest()
            self._leave(queued)
            return queued.item
        return None

    def pop(self, now: float) -> Item | None:
        """Return the next item whose deadline has not passed, or None.

        Expired items are not served; `expire` returns them.
        """
        self._collect_expired(now)
        for queue in self._classes:
            queued = queue.next()
            if queued is not None:
                self._leave(queued)
                return queued.item
        return None

    def remove(self, queued: QueuedItem[Item]) -> bool:
        """Remove an item, such as that of a client that left. Return whether it was
        still in the queue."""
        if queued.is_expired:
            queued.is_expired = False
            return True
        if not queued.is_waiting:
            return False
        self._leave(queued)
        return True

    def expire(self, now: float) -> list[Item]:
        """Remove and return the items whose deadlines have passed, earliest first."""
        self._collect_expired(now)
        expired = [queued.item for queued in self._expired if queued.is_expired]
        for queued in self._expired:
            queued.is_expired = False
        self._expired.clear()
        return expired

    def _collect_expired(self, now: float) -> None:
        while self._deadlines:
            first = self._deadlines[0]
            if first.is_waiting and first.deadline > now:
                return
            queued = heappop(self._deadlines)
            if queued.is_waiting:
                self._leave(queued)
                queued.is_expired = True
                self._expired.append(queued)

    def _leave(self, queued: QueuedItem[Item]) -> None:
        queued.is_waiting = False
        self._classes[queued.priority].remove(queued)
        self._waiting -= 1
        self._bytes -= queued.size_bytes
        if len(self._deadlines) > 2 * self._waiting + REMOVED_BEFORE_CLEANUP:
            self._deadlines = [other for other in self._deadlines if other.is_waiting]
            heapify(self._deadlines)
