"""How close the nodes of a gang must be while it waits for close ones.

The rule is that of `columns.locality`, for live gangs: at first the gang accepts only
one rack, then one pod, then any nodes. It does not wait for a domain that could not
hold it even when idle.
"""

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field, replace

from corral.domain.placement_constraints import Level, Mode, Topology
from corral.domain.queue_tree import QueueTree
from corral.domain.reason_code import ReasonCode
from corral.domain.resources import Shape
from corral.domain.units import duration_text
from corral.schedule.capacity.node_room import NodeRoom
from corral.schedule.placement.gang_placement import find_seats
from corral.schedule.placement.node_types import NodeTypes
from corral.schedule.placement.pass_view import PassView
from corral.schedule.placement.topology import domain_of, largest_domain
from corral.schedule.waiting import Reason, Waiting


def locality_delays(tree: QueueTree, gang: Waiting) -> list[float]:
    """Return the waiting times, in seconds, after which the gang accepts a wider set of
    nodes; empty for a gang of one node."""
    if max(shape.nodes for shape in gang.shapes) == 1:
        return []
    return [
        seconds
        for seconds in (
            tree.rack_locality_delay_seconds,
            tree.pod_locality_delay_seconds,
        )
        if seconds
    ]


@dataclass(slots=True)
class Nearness:
    """Decides in one scheduling pass how close to each other a gang's nodes must be.
    `now` is the wall clock, and `rooms` are the nodes that accept work."""

    rooms: Collection[NodeRoom]
    fleet: NodeTypes
    tree: QueueTree
    now: float
    _nearest: dict[tuple[object, ...], Level | None] = field(default_factory=dict)

    def levels(
        self, gang: Waiting, shapes: Sequence[Shape]
    ) -> tuple[Level | None, ...]:
        """Return for each shape the level of the domain that the gang may not leave
        now; None if any nodes are accepted."""
        return (
            tuple(self._required_level(gang, shape) for shape in shapes)
            if self._is_on()
            else ()
        )

    def near(self, gang: Waiting, shape: Shape) -> Waiting:
        """Return the gang with the requirement to stay within one domain, if its
        locality delay still lasts; otherwise unchanged."""
        level = self._required_level(gang, shape) if self._is_on() else None
        if level is None:
            return gang
        together = Topology(mode=Mode.REQUIRE, within=level)
        return replace(gang, place=replace(gang.place, topology=together))

    def why(
        self,
        gang: Waiting,
        shapes: Sequence[Shape],
        opened: PassView,
        lets: Callable[[Waiting, Shape], bool],
    ) -> Reason | None:
        """Return the reason if the gang would fit, but only on nodes that are not close
        enough yet; None if it would not fit at all. `lets` returns whether its queue
        may hold the shape."""
        for shape in shapes:
            level = self._required_level(gang, shape)
            seats = find_seats(opened.rooms, gang, shape) if level is not None else ()
            if level is not None and seats and lets(gang, shape):
                return self._locality_reason(
                    level, [opened.by_id[seat.node] for seat in seats]
                )
        return None

    def _locality_reason(self, level: Level, nodes: Sequence[NodeRoom]) -> Reason:
        domains = len({domain_of(room.id, room.labels, level) for room in nodes})
        up_to = duration_text(self._delay_seconds(level))
        return Reason(
            code=ReasonCode.TOPOLOGY,
            sentence=f"the job waits up to {up_to} for nodes in one {level}; now it would "
            f"fit only across {domains} {level}s",
        )

    def _is_on(self) -> bool:
        return (
            max(
                self.tree.rack_locality_delay_seconds,
                self.tree.pod_locality_delay_seconds,
            )
            > 0
        )

    def _delay_seconds(self, level: Level) -> float:
        rack, pod = (
            self.tree.rack_locality_delay_seconds,
            self.tree.pod_locality_delay_seconds,
        )
        return rack if level == Level.RACK else pod

    def _required_level(self, gang: Waiting, shape: Shape) -> Level | None:
        if shape.nodes == 1 or gang.place.topology.mode != Mode.PREFER:
            return None
        waited = self.now - gang.since
        if waited >= max(map(self._delay_seconds, (Level.RACK, Level.POD))):
            return None
        nearest = self._nearest_of(gang, shape)
        if nearest == Level.RACK and waited < self._delay_seconds(Level.RACK):
            return Level.RACK
        if nearest is not None and waited < self._delay_seconds(Level.POD):
            return Level.POD
        return None

    def _nearest_of(self, gang: Waiting, shape: Shape) -> Level | None:
        """Return the lowest level at which one domain would hold the gang if its nodes
        were all idle; None if no domain would."""
        key = (shape, gang.place, gang.pinned_to)
        if key not in self._nearest:
            able = {
                room.id: room.labels
                for room in self.rooms
                if self.fleet.could_seat(room.id, shape.resources)
                and gang.pinned_to in (None, room.id)
                and gang.place.admits(room.labels)
            }
            levels = (Level.RACK, Level.POD)
            holding = (
                level for level in levels if largest_domain(able, level) >= shape.nodes
            )
            self._nearest[key] = next(holding, None)
        return self._nearest[key]
