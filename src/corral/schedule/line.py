"""Who is tried next: each queue and user has a line of its own, and the lines take turns."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from heapq import heapify, heappop, heapreplace

from corral.domain.ids import QueueName, UserName
from corral.domain.queue import Policy
from corral.schedule.standing import Leaf, Standing
from corral.schedule.waiting import Waiting

Beyond = tuple[bool, ...]
Shares = tuple[float, ...]
Key = tuple[bool, Beyond, int, Shares, tuple[int, int], int]  # from one level of the tree down


@dataclass(slots=True, eq=False)
class _Node:
    """A queue, or a line of gangs: one of a user, or of a queue that goes by age alone.

    `heap` holds those below it that still have gangs, the one whose turn it is first.
    """

    depth: int
    queue: QueueName | None = None  # None: above all queues, or the line of a user
    line: list[Waiting] = field(default_factory=list)
    leaf: Leaf | None = None
    heap: list[tuple[Key, "_Node"]] = field(default_factory=list)


class Line:
    """Waiting gangs in the order of: queues with GPUs of their own left, then priority, then fair
    share, then age. Preemptible ones come after all others.

    What a gang takes changes the shares of its own queue and of those above it, and of no other. So
    after each gang only its own way up the tree is put in order again.
    """

    def __init__(self, waiting: Iterable[Waiting], standing: Standing) -> None:
        self._standing = standing
        self._top = _Node(depth=0)
        self._way: list[_Node] = []  # from the top to the line that the last gang came from
        self._deepest = max((depth + 1 for depth, _ in standing.tree.walk()), default=1)
        self._fill(waiting)
        self._order(self._top)

    def next(self) -> Waiting | None:
        """The next gang, once; None after the last."""
        self._put_right()
        node = self._top
        self._way = [node]
        while node.heap:
            node = node.heap[0][1]
            self._way.append(node)
        return node.line.pop() if node.line else None

    def _put_right(self) -> None:
        """Order the way of the last gang anew, from its end up."""
        for node in reversed(self._way[:-1]):
            key, below = node.heap[0]
            if below.line or below.heap:
                heapreplace(node.heap, (self._key(below, key[-1]), below))
            else:
                heappop(node.heap)

    def _fill(self, waiting: Iterable[Waiting]) -> None:
        nodes: dict[object, _Node] = {}
        lines: dict[tuple[QueueName, UserName], _Node] = {}
        for gang in waiting:
            asker = (gang.queue, gang.user)
            if asker not in lines:
                lines[asker] = self._line_of(gang, nodes)
            lines[asker].line.append(gang)
        for node in lines.values():
            node.line.sort(key=lambda one: (one.preemptible, -one.priority, one.order))
            node.line.reverse()  # the first is taken from the end; equals stay as they came

    def _line_of(self, gang: Waiting, nodes: dict[object, _Node]) -> _Node:
        """The line of the gang's user in its queue; or of the first queue that goes by age."""
        node = self._top
        for queue in self._standing.tree.path(gang.queue):
            node = self._below(node, queue.name, nodes, queue=queue.name)
            if queue.policy == Policy.FIFO:
                return node
        leaf = (gang.queue, gang.user)
        return self._below(node, leaf, nodes, leaf=leaf)

    def _below(
        self,
        above: _Node,
        name: object,
        nodes: dict[object, _Node],
        *,
        queue: QueueName | None = None,
        leaf: Leaf | None = None,
    ) -> _Node:
        if name not in nodes:
            nodes[name] = _Node(depth=above.depth + 1, queue=queue, leaf=leaf)
            no_key: Key = (False, (), 0, (), (0, 0), len(above.heap))
            above.heap.append((no_key, nodes[name]))
        return nodes[name]

    def _order(self, node: _Node) -> None:
        for _, below in node.heap:
            self._order(below)
        node.heap = [(self._key(below, key[-1]), below) for key, below in node.heap]
        heapify(node.heap)

    def _key(self, node: _Node, number: int) -> Key:
        """Where the node stands among its likes, by the best gang in it."""
        if node.heap:
            yields, beyond, priority, shares, order, _ = node.heap[0][0]
        else:  # as long as that of the deepest, so that keys of all depths compare
            gang = node.line[-1]
            yields, priority, order = gang.preemptible, -gang.priority, gang.order
            levels = self._deepest - node.depth + (node.queue is None)
            beyond = (False,) * levels
            shares = (0.0,) * (levels + (node.queue is not None))
        if node.queue is not None:
            beyond = (self._standing.is_beyond(node.queue), *beyond)
            shares = (self._standing.share(node.queue), *shares)
        elif node.leaf is not None:
            shares = (self._standing.user_share(node.leaf), *shares)
        return yields, beyond, priority, shares, order, number
