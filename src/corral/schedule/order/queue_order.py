"""Order in which a pass tries the gangs. Each queue and each user has a line of waiting
gangs, and the line whose turn it is goes next."""

from collections.abc import Callable, Iterable, Iterator, Sequence, Set
from dataclasses import dataclass, field
from heapq import heapify, heappop, heapreplace

from corral.domain.ids import JobId, QueueName, UserName
from corral.domain.queue_policy import Policy
from corral.domain.units import MILLIS_PER_GPU
from corral.schedule.order.late_jobs import (
    LATE_KEY,
    LATE_SECONDS,
    lateness_of,
    lent_to,
)
from corral.schedule.order.priority_key import PriorityKeys, class_of
from corral.schedule.quota.balances import Leaf, Standing
from corral.schedule.waiting import Waiting

Beyond = tuple[bool, ...]
Shares = tuple[float, ...]
# from one level of the tree down
Key = tuple[bool, Beyond, int, Shares, tuple[int, int], int]


LineKey = tuple[bool, int, float, tuple[int, int], int]  # in one line


@dataclass(slots=True, eq=False)
class _Run:
    """A group of gangs with equal requests, with the position `at` up to which this
    pass has tried them. `rank` is the group's sort key by the policy of its queue.

    `has_late_job` means that the first gang of the group goes first in its line because
    it has waited longest for its run time (the late job).
    """

    gangs: Sequence[Waiting]
    rank: float
    at: int = 0
    has_late_job: bool = False

    def key(self, number: int) -> LineKey:
        first_gang = self.gangs[self.at]
        rank = LATE_KEY if self.has_late_job and self.at == 0 else self.rank
        return (
            first_gang.preemptible,
            -first_gang.priority,
            rank,
            first_gang.order,
            number,
        )


@dataclass(slots=True, eq=False)
class _Node:
    """A node in the tree of lines: a queue, or a line of groups. A line belongs to one
    user, or to a queue that has one line for all users.

    `heap` holds the child nodes that still have gangs; the child whose turn it is comes
    first. `runs` holds the groups of a line in the same way. `by_service` means that
    the node is below a queue that is ordered by service.
    """

    depth: int
    by_service: bool = False
    queue: QueueName | None = None  # None: above all queues, or the line of a user
    runs: list[tuple[LineKey, _Run]] = field(default_factory=list)
    leaf: Leaf | None = None
    heap: list[tuple[Key, "_Node"]] = field(default_factory=list)


def in_order(line: "QueueLine") -> Iterator[Waiting]:
    """Yield all gangs, in the order in which they would be tried if none found a place."""
    while (gang := line.next()) is not None:
        yield gang


class QueueLine:
    """Waiting gangs in the order in which a pass tries them. Gangs of queues with
    unused GPUs of their own come first. Then priority, fair share, the key of the
    queue's policy, and age decide. Preemptible gangs come after all others. Below a
    queue that is ordered by service, keys replace shares.

    The seats that a gang takes change the shares of its own queue and of the queues
    above it, and of no other queue. So after each gang, only the path of that queue in
    the tree is reordered.
    """

    def __init__(
        self,
        groups: Iterable[Sequence[Waiting]],
        standing: Standing,
        keys: PriorityKeys | None = None,
        now: float = 0.0,
        lent: Callable[[], float] = float,
    ) -> None:
        """Create the line. Each of the `groups` has gangs of one user, queue, priority
        and key, in the order of age.

        `now` is the wall clock. `lent` returns the GPUs that late jobs hold during their
        turn; it is called only if an old gang waits.
        """
        self.late_jobs: set[JobId] = set()
        self._now = now
        self._standing = standing
        self._keys = keys or PriorityKeys(standing.tree, None)
        self._top = _Node(depth=0)
        # from the top to the line that the last gang came from
        self._way: list[_Node] = []
        self._deepest = max((depth + 1 for depth, _ in standing.tree.walk()), default=1)
        self._build_lines(groups, lent)
        self._heapify_subtree(self._top)

    def next(self) -> Waiting | None:
        """Return the next gang, each only once; None after the last."""
        self._put_right()
        node = self._top
        self._way = [node]
        while node.heap:
            node = node.heap[0][1]
            self._way.append(node)
        if not node.runs:
            return None
        run = node.runs[0][1]
        run.at += 1
        return run.gangs[run.at - 1]

    def close(self) -> Sequence[Waiting]:
        """Return the remaining gangs of the last gang's group, and remove them from the
        line."""
        run = self._way[-1].runs[0][1]
        rest, run.at = run.gangs[run.at :], len(run.gangs)
        return rest

    def shut(self, spared: Set[JobId]) -> Sequence[Waiting]:
        """Remove the gangs behind the last gang in its own line, and return them. Gangs
        of the jobs in `spared` stay in it."""
        node, behind = self._way[-1], list[tuple[LineKey, Waiting]]()
        for key, run in node.runs:
            if run.at < len(run.gangs) and run.gangs[run.at].job not in spared:
                behind += ((key, gang) for gang in run.gangs[run.at :])
                run.at = len(run.gangs)
        node.runs = [(key, run) for key, run in node.runs if run.at < len(run.gangs)]
        heapify(node.runs)
        return [gang for _, gang in sorted(behind, key=lambda one: one[0])]

    def _put_right(self) -> None:
        """Reorder the tree along the path of the last gang, from its line to the top."""
        if self._way and self._way[-1].runs:
            runs = self._way[-1].runs
            key, run = runs[0]
            if run.at < len(run.gangs):
                heapreplace(runs, (run.key(key[-1]), run))
            else:
                heappop(runs)
        for node in reversed(self._way[:-1]):
            heap_key, below = node.heap[0]
            if below.runs or below.heap:
                heapreplace(node.heap, (self._node_key(below, heap_key[-1]), below))
            else:
                heappop(node.heap)

    def _build_lines(
        self, groups: Iterable[Sequence[Waiting]], lent: Callable[[], float]
    ) -> None:
        nodes: dict[object, _Node] = {}
        lines: dict[tuple[QueueName, UserName], _Node] = {}
        for number, gangs in enumerate(groups):
            asker = (gangs[0].queue, gangs[0].user)
            if asker not in lines:
                lines[asker] = self._line_of(gangs[0], nodes)
            run = _Run(gangs, self._keys.of_waiting(gangs[0]))
            lines[asker].runs.append((run.key(number), run))
        line_nodes = {id(node): node for node in lines.values()}.values()
        self._find_late_jobs(line_nodes, lent)
        for node in line_nodes:
            heapify(node.runs)

    def _find_late_jobs(
        self, lines: Iterable[_Node], lent: Callable[[], float]
    ) -> None:
        """Find the protected gang of each line: of the first gangs of its groups, the
        latest one, if the part of the cluster lent to late gangs allows it. The latest
        gang of all lines is considered first."""
        late_runs = [
            (lateness, node, run)
            for node in lines
            for lateness, run in [self._latest_run(node)]
            if lateness > 0
        ]
        lent_gpus, gpus = lent() if late_runs else 0.0, self._standing.capacity.gpus
        for lateness, node, run in sorted(
            late_runs, key=lambda one: (-one[0], one[2].gangs[0].order)
        ):
            gpu_allowance, gang = lent_to(lateness, gpus), run.gangs[0]
            if lent_gpus <= gpu_allowance:
                lent_gpus += min(
                    gpu_allowance, class_of(gang).gpu_millis / MILLIS_PER_GPU
                )
                self.late_jobs.add(gang.job)
                run.has_late_job = True
                node.runs = [(run.key(key[-1]), run) for key, run in node.runs]

    def _latest_run(self, line: _Node) -> tuple[float, _Run]:
        """Return the lateness of the latest gang of the line, and its group. The
        lateness is 0 until a gang has waited for `LATE_SECONDS`."""
        return max(
            ((self._lateness_of(run.gangs[0]), run) for _, run in line.runs),
            key=lambda pair: pair[0],
        )

    def _lateness_of(self, gang: Waiting) -> float:
        waited_seconds = gang.waited_by(self._now)
        if waited_seconds < LATE_SECONDS:
            return 0.0
        return lateness_of(waited_seconds, gang.served_seconds)

    def _line_of(self, gang: Waiting, nodes: dict[object, _Node]) -> _Node:
        """Return the line in which the gang waits: that of its user in its queue, or
        that of the topmost queue on its path that has one line for all users."""
        node = self._top
        for queue in self._standing.tree.path(gang.queue):
            node = self._get_child_node(node, queue.name, nodes, queue=queue.name)
            if not queue.policy.goes_by_service and not node.by_service:
                return node
        leaf = (gang.queue, gang.user)
        return self._get_child_node(node, leaf, nodes, leaf=leaf)

    def _get_child_node(
        self,
        above: _Node,
        name: object,
        nodes: dict[object, _Node],
        *,
        queue: QueueName | None = None,
        leaf: Leaf | None = None,
    ) -> _Node:
        if name not in nodes:
            rules = above.queue and self._standing.tree.queue(above.queue).policy
            by_service = above.by_service or rules == Policy.ATTAINED
            nodes[name] = _Node(above.depth + 1, by_service, queue=queue, leaf=leaf)
            no_key: Key = (False, (), 0, (), (0, 0), len(above.heap))
            above.heap.append((no_key, nodes[name]))
        return nodes[name]

    def _heapify_subtree(self, node: _Node) -> None:
        for _, below in node.heap:
            self._heapify_subtree(below)
        node.heap = [
            (self._node_key(below, key[-1]), below) for key, below in node.heap
        ]
        heapify(node.heap)

    def _node_key(self, node: _Node, number: int) -> Key:
        """Return the sort key of the node among its siblings, taken from the first gang
        in it."""
        if node.heap:
            yields, beyond, priority, shares, order, _ = node.heap[0][0]
        else:  # as long as that of the deepest, so that keys of all depths compare
            yields, priority, rank, order, _ = node.runs[0][0]
            levels = self._deepest - node.depth + (node.queue is None)
            beyond = (False,) * levels
            shares = (0.0,) * (levels + (node.queue is not None))
        if node.queue is not None:
            beyond = (self._standing.is_beyond(node.queue), *beyond)
            share = shares[0] if node.by_service else self._standing.share(node.queue)
            shares = (share, *shares)
        elif node.leaf is not None:
            share = rank if node.by_service else self._standing.user_share(node.leaf)
            shares = (share, *shares)
        return yields, beyond, priority, shares, order, number
