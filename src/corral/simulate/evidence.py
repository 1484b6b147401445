"""Actual events on the nodes, recorded independently of what the head believes."""

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field

from corral.domain.attempt import Exit, Save, Seat
from corral.domain.ids import JobId, NodeId
from corral.domain.observed_state import AttemptKey


@dataclass(slots=True)
class Alive:
    """The ranks of one attempt that are running on one node at this moment."""

    key: AttemptKey
    seat: Seat
    ranks: set[int]


@dataclass(slots=True)
class TrueHang:
    """A hang of an attempt as it really is: its stuck rank and the step after which it
    stands still. `ended_at`: when it made a step again; None: it has not."""

    began_at: float
    step: int
    rank: int
    node: NodeId
    is_machines: bool
    ended_at: float | None = None


@dataclass(slots=True)
class Evidence:
    """Record of what really happened on the nodes, for the checks. Times are virtual
    seconds.

    `own`: failures that a rank of an attempt caused itself; `hurt`: faults from outside
    that hit an attempt; `hangs`: its hangs, in order.
    """

    alive: dict[JobId, dict[tuple[int, NodeId], Alive]] = field(
        default_factory=lambda: defaultdict(dict)
    )
    started: dict[AttemptKey, dict[NodeId, int]] = field(
        default_factory=lambda: defaultdict(dict)
    )
    exits: dict[AttemptKey, dict[int, Exit]] = field(
        default_factory=lambda: defaultdict(dict)
    )
    own: dict[AttemptKey, dict[int, Exit]] = field(
        default_factory=lambda: defaultdict(dict)
    )
    hurt: dict[AttemptKey, list[str]] = field(default_factory=lambda: defaultdict(list))
    first_up: dict[AttemptKey, float] = field(default_factory=dict)  # its first node
    up_since: dict[AttemptKey, float] = field(default_factory=dict)
    warned: set[tuple[AttemptKey, NodeId]] = field(default_factory=set)  # of its end
    made: dict[AttemptKey, dict[int, Save]] = field(
        default_factory=lambda: defaultdict(dict)
    )
    broken: set[tuple[AttemptKey, int]] = field(default_factory=set)
    without_power: dict[NodeId, list[list[float]]] = field(
        default_factory=lambda: defaultdict(list)
    )  # from, until
    hangs: dict[AttemptKey, list[TrueHang]] = field(
        default_factory=lambda: defaultdict(list)
    )
    # what broke its GPU under it
    faulty: dict[AttemptKey, str] = field(default_factory=dict)
    # until when, newest
    agent_unable: dict[NodeId, float] = field(default_factory=dict)

    def start(self, key: AttemptKey, node: NodeId, seat: Seat, ranks: set[int]) -> None:
        self.alive[key[0]][key[1], node] = Alive(key, seat, set(ranks))
        self.started[key][node] = len(ranks)

    def rank_ends(
        self, key: AttemptKey, node: NodeId, rank: int, end: Exit, *, own: bool
    ) -> None:
        self.exits[key][rank] = end
        if own and not end.clean:
            self.own[key][rank] = end
        alive = self.alive[key[0]].get((key[1], node))
        if alive is not None:
            alive.ranks.discard(rank)
            if not alive.ranks:
                del self.alive[key[0]][key[1], node]

    def on_node(self, node: NodeId) -> Iterator[Alive]:
        for alive_by_attempt in self.alive.values():
            yield from (
                alive
                for (_, alive_node), alive in alive_by_attempt.items()
                if alive_node == node
            )

    def lives(self, key: AttemptKey, node: NodeId) -> bool:
        return (key[1], node) in self.alive[key[0]]

    def lost_since(self, node: NodeId, seconds: float) -> bool:
        """Return whether the node has been without power at any moment since the
        virtual time `seconds`."""
        return any(outage_end >= seconds for _, outage_end in self.without_power[node])
