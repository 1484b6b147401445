"""Who is tried next: each queue and user has a line of its own, and the lines take turns."""

from collections.abc import Iterable
from heapq import heapify, heappop, heappush

from corral.domain.ids import UserName
from corral.domain.queue import Policy
from corral.schedule.standing import Leaf, Standing
from corral.schedule.waiting import Waiting

Key = tuple[tuple[bool, ...], int, tuple[float, ...], tuple[int, int], int]


class Line:
    """Waiting gangs in the order of: queues with GPUs of their own left, then priority, then fair
    share, then age. Shares only grow while a pass takes, so a key that is too low is put right when
    its turn comes."""

    def __init__(self, waiting: Iterable[Waiting], standing: Standing) -> None:
        self._standing = standing
        self._lines: dict[Leaf, list[Waiting]] = {}
        for gang in waiting:
            self._lines.setdefault(self._leaf(gang), []).append(gang)
        for line in self._lines.values():
            line.sort(key=lambda one: (-one.priority, one.order))
            line.reverse()  # the first is taken from the end
        self._heap = [
            (self._key(leaf, number), standing.version, leaf)
            for number, leaf in enumerate(self._lines)
        ]
        heapify(self._heap)

    def next(self) -> Waiting | None:
        """The next gang, once; None after the last."""
        while self._heap:
            key, version, leaf = heappop(self._heap)
            if version != self._standing.version:
                key_now = self._key(leaf, key[-1])
                if key_now > key:
                    heappush(self._heap, (key_now, self._standing.version, leaf))
                    continue
            gang = self._lines[leaf].pop()
            if self._lines[leaf]:
                entry = (self._key(leaf, key[-1]), self._standing.version, leaf)
                heappush(self._heap, entry)
            return gang
        return None

    def _leaf(self, gang: Waiting) -> Leaf:
        """The user in the queue; or the queue that goes by age, for all that is below it."""
        for queue in self._standing.tree.path(gang.queue):
            if queue.policy == Policy.FIFO:
                return queue.name, UserName("")
        return gang.queue, gang.user

    def _key(self, leaf: Leaf, number: int) -> Key:
        beyond, shares = self._standing.levels(leaf)
        head = self._lines[leaf][-1]
        return beyond, -head.priority, shares, head.order, number
