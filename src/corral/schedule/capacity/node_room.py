"""Free capacity of one node during a pass."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from itertools import islice
from typing import Final, NamedTuple

from corral.domain.attempt import Allocation, Seat
from corral.domain.ids import NodeId
from corral.domain.node import Node
from corral.domain.resources import Resources
from corral.domain.store_url import is_store_url
from corral.domain.units import MILLIS_PER_GPU

_WHOLE: Final = MILLIS_PER_GPU
STORE_MARK: Final = "store"  # of an address in an object store
# of taking so much of a GPU's free thousandths, in GPUs
Waste = Callable[[int, int], float]


class ReservedCapacity(NamedTuple):
    """The part of a seat that was free on a node and has been reserved for a waiting
    job. `gpus` are pairs (GPU index, thousandths); `slices` are pairs (GPU index, slice
    name)."""

    gpus: tuple[tuple[int, int], ...]
    slices: tuple[tuple[int, str], ...]
    cpu_millis: int
    memory_bytes: int
    alone: bool
    kin: str
    apart_from: tuple[str, ...]


class NodeRoom:
    """A node's free GPUs (in thousandths, by index), CPU, memory and ports. Copies are
    used to try placements.

    `seats` is the number of seats assigned or reserved, and `alone` the number of
    exclusive ones. `guests` counts the jobs on the node by the name under which other
    jobs may avoid them. `shunned` holds names that jobs on the node avoid; `shunners`
    holds pairs (avoiding name, avoided name). `suspicion` is the number of recent
    failures. `last` are GPUs that are assigned after all others.
    """

    __slots__ = (
        "_gpus",
        "alone",
        "free_cpu_millis",
        "free_gpu_millis",
        "free_memory_bytes",
        "free_ports",
        "free_slices",
        "fullness",
        "guests",
        "id",
        "kinds",
        "labels",
        "last",
        "node",
        "numa",
        "seats",
        "shares",
        "shunned",
        "shunners",
        "suspicion",
        "types",
        "whole",
    )

    def __init__(
        self, node: Node, taken: Iterable[Allocation] = (), *, suspicion: int = 0
    ) -> None:
        inventory = node.inventory
        self.node = node
        self._gpus = inventory.gpus
        self.id: NodeId = node.id
        self.labels = node.labels
        self.types = inventory.types
        self.kinds = inventory.gpu_types
        self.numa = inventory.numa
        self.shares = inventory.gpu_shares
        self.suspicion = suspicion
        self.seats = 0
        self.alone = 0
        self.guests: Counter[str] = Counter()
        self.shunned: Counter[str] = Counter()
        self.shunners: Counter[tuple[str, str]] = Counter()
        self.free_gpu_millis = [_WHOLE] * len(inventory.gpus)
        self.free_slices = list(inventory.slices)
        self.free_cpu_millis = inventory.cpu_millis
        self.free_memory_bytes = inventory.memory_bytes
        self.free_ports = list(inventory.ports)
        self.last: frozenset[int] = frozenset()
        self._count()
        for allocation in taken:
            self.take(allocation.seat)
            self.hold_ports(allocation)

    def seat(
        self, asked: Resources, *, exclusive: bool = False, waste: Waste | None = None
    ) -> Seat | None:
        """Return the best seat for these resources on this node; None if they do not
        fit. Nothing is taken yet.

        Whole GPUs are the lowest free indices, if possible of one NUMA node. A share
        goes to the GPU where it wastes least by `waste`, among equals to the fullest
        GPU.
        """
        if (
            asked.cpu_millis > self.free_cpu_millis
            or asked.memory_bytes > self.free_memory_bytes
        ):
            return None
        if self.alone or (exclusive and self.seats):
            return None
        gpus = (
            self._pick_shared_gpu(asked, waste)
            if asked.is_share
            else self._pick_whole_gpus(asked)
        )
        if gpus is None:
            return None
        millis, slices = asked.gpu_millis, tuple[str, ...]()
        if asked.is_share:
            millis, count = self._taken_by(asked.gpu_millis, gpus[0])
            slices = tuple(self.free_slices[gpus[0]][:count])
        return Seat(
            node=self.id,
            gpus=gpus,
            gpu_millis=millis,
            cpu_millis=asked.cpu_millis,
            memory_bytes=asked.memory_bytes,
            slices=slices,
            exclusive=exclusive,
        )

    def take(
        self, seat: Seat, *, kin: str = "", apart_from: Iterable[str] = ()
    ) -> None:
        """Count the seat as taken. Indices that the node no longer has are left out.

        `kin` is the name by which other jobs refer to the job that takes the seat.
        `apart_from` holds the names that this job wants to be apart from.
        """
        gpu_share_millis = seat.gpu_millis // len(seat.gpus) if seat.gpus else 0
        for index in seat.gpus:
            if index < len(self.free_gpu_millis):
                self.free_gpu_millis[index] -= gpu_share_millis
                if seat.slices:
                    free_now = self.free_slices[index]
                    self.free_slices[index] = tuple(
                        slice_name
                        for slice_name in free_now
                        if slice_name not in seat.slices
                    )
        self.free_cpu_millis -= seat.cpu_millis
        self.free_memory_bytes -= seat.memory_bytes
        self.seats += 1
        self.alone += seat.exclusive
        self.guests[kin] += 1
        self._count_shunned(kin, apart_from, 1)
        self._count()

    def lack(self) -> None:
        """Subtract the GPUs, CPU and memory that processes outside Corral now use on
        the node."""
        inventory = self.node.inventory
        for index in inventory.taken:
            self.free_gpu_millis[index] = 0
            self.free_slices[index] = ()
        self.free_cpu_millis -= inventory.taken_cpu_millis
        self.free_memory_bytes -= inventory.taken_memory_bytes
        self._count()

    def give(
        self, seat: Seat, *, kin: str = "", apart_from: Iterable[str] = ()
    ) -> None:
        """Count the seat as free again; the arguments are those of the call of
        `take`."""
        gpu_share_millis = seat.gpu_millis // len(seat.gpus) if seat.gpus else 0
        for index in seat.gpus:
            if index < len(self.free_gpu_millis):
                self.free_gpu_millis[index] += gpu_share_millis
                self._give_slices(index, seat.slices)
        self.free_cpu_millis += seat.cpu_millis
        self.free_memory_bytes += seat.memory_bytes
        self.seats -= 1
        self.alone -= seat.exclusive
        self.guests[kin] -= 1
        self._count_shunned(kin, apart_from, -1)
        self._count()

    def _count_shunned(self, kin: str, apart_from: Iterable[str], sign: int) -> None:
        for name in apart_from:
            self.shunned[name] += sign
            self.shunners[kin, name] += sign

    def _give_slices(self, index: int, names: Iterable[str]) -> None:
        """Mark these slices of the GPU as free again. The free slices keep the order of
        the inventory."""
        free_names = {*self.free_slices[index], *names}
        all_slices = self.node.inventory.gpus[index].slices
        self.free_slices[index] = tuple(
            slice_name for slice_name in all_slices if slice_name in free_names
        )

    def keep(
        self, seat: Seat, *, kin: str = "", apart_from: Iterable[str] = ()
    ) -> ReservedCapacity:
        """Reserve the part of the seat that is free now, so that no other job gets it.
        Return that part, which `let_go` frees again."""
        gpu_share_millis = seat.gpu_millis // len(seat.gpus) if seat.gpus else 0
        free_millis = self.free_gpu_millis
        free_indices = [index for index in seat.gpus if index < len(free_millis)]
        kept_capacity = ReservedCapacity(
            gpus=tuple(
                (index, max(0, min(gpu_share_millis, free_millis[index])))
                for index in free_indices
            ),
            slices=tuple(
                (i, s)
                for i in free_indices
                for s in seat.slices
                if s in self.free_slices[i]
            ),
            cpu_millis=max(0, min(seat.cpu_millis, self.free_cpu_millis)),
            memory_bytes=max(0, min(seat.memory_bytes, self.free_memory_bytes)),
            alone=seat.exclusive,
            kin=kin,
            apart_from=tuple(apart_from),
        )
        for index, name in kept_capacity.slices:
            free_now = self.free_slices[index]
            self.free_slices[index] = tuple(
                slice_name for slice_name in free_now if slice_name != name
            )
        self.alone += kept_capacity.alone
        self._count_shunned(kin, kept_capacity.apart_from, 1)
        self._turn(kept_capacity, -1)
        return kept_capacity

    def let_go(self, kept: ReservedCapacity) -> None:
        """Free the capacity that `keep` has reserved."""
        for index, name in kept.slices:
            self._give_slices(index, [name])
        self.alone -= kept.alone
        self._count_shunned(kept.kin, kept.apart_from, -1)
        self._turn(kept, 1)

    def _turn(self, kept: ReservedCapacity, sign: int) -> None:
        for index, millis in kept.gpus:
            self.free_gpu_millis[index] += sign * millis
        self.free_cpu_millis += sign * kept.cpu_millis
        self.free_memory_bytes += sign * kept.memory_bytes
        self.seats -= sign
        self.guests[kept.kin] -= sign
        self._count()

    def copy(self) -> NodeRoom:
        """Return a copy of the room, to try placements with."""
        room_copy = NodeRoom.__new__(NodeRoom)
        for name in NodeRoom.__slots__:
            setattr(room_copy, name, getattr(self, name))
        room_copy.guests, room_copy.shunned = (
            Counter(self.guests),
            Counter(self.shunned),
        )
        room_copy.shunners = Counter(self.shunners)
        room_copy.free_gpu_millis = self.free_gpu_millis.copy()
        room_copy.free_slices = list(
            self.free_slices
        )  # a GPU's is replaced, never changed
        room_copy.free_ports = self.free_ports.copy()
        return room_copy

    def narrow(self, other: NodeRoom) -> None:
        """Reduce the free capacity to what is also free in `other`, which describes the
        same node at another time."""
        millis_pairs = zip(self.free_gpu_millis, other.free_gpu_millis, strict=True)
        self.free_gpu_millis = [max(0, min(two)) for two in millis_pairs]
        slices = zip(self.free_slices, other.free_slices, strict=True)
        self.free_slices = [
            tuple(slice_name for slice_name in own_slices if slice_name in other_slices)
            for own_slices, other_slices in slices
        ]
        self.free_cpu_millis = max(0, min(self.free_cpu_millis, other.free_cpu_millis))
        self.free_memory_bytes = max(
            0, min(self.free_memory_bytes, other.free_memory_bytes)
        )
        self.seats, self.alone = (
            max(self.seats, other.seats),
            max(self.alone, other.alone),
        )
        self.guests |= other.guests
        self.shunned |= other.shunned
        self.shunners |= other.shunners
        self._count()

    @property
    def free_millis(self) -> int:
        """Return the free part of all GPUs of the node together, in thousandths."""
        return self.fullness[1]

    def _count(self) -> None:
        """Update `whole` and `fullness`. `whole` is the number of completely free GPUs.
        `fullness` is the sort key of best fit, where the lowest goes first: by the
        fewest recent failures, then the fewest free GPUs, the least free CPU, and the
        lowest id."""
        self.whole = self.free_gpu_millis.count(_WHOLE)
        if any(self.free_slices):
            self.whole = sum(self._is_whole(index) for index in range(len(self.types)))
        free_millis = self.free_gpu_millis
        # an overcommitted GPU counts as zero free, not as negative
        if min(free_millis, default=0) < 0:
            free_millis = [max(0, millis) for millis in free_millis]
        self.fullness = (
            self.suspicion,
            sum(free_millis),
            self.free_cpu_millis,
            self.id,
        )

    def _is_whole(self, index: int) -> bool:
        """Return whether the GPU can be assigned as a whole. A GPU that is cut into
        slices never can, even if all of it is free."""
        return self.free_gpu_millis[index] == _WHOLE and not self._gpus[index].slices

    def take_port(self) -> int | None:
        return self.free_ports.pop(0) if self.free_ports else None

    def hold_ports(self, allocation: Allocation) -> None:
        """Mark the ports of the allocation as taken."""
        for port in allocation.ports:
            if port in self.free_ports:
                self.free_ports.remove(port)

    def give_port(self, port: int) -> None:
        """Mark the port as free again. The free ports keep the order of the inventory."""
        free_ports = {*self.free_ports, port}
        self.free_ports = [
            port for port in self.node.inventory.ports if port in free_ports
        ]

    def mark_of(self, path: str) -> str | None:
        """Return the mark that identifies the shared storage that holds the path on
        this node; None if no declared shared path contains it."""
        return mark_of(self.node, path)

    def _pick_whole_gpus(self, asked: Resources) -> tuple[int, ...] | None:
        if asked.gpus > self.whole:
            return None
        free_indices: Iterable[int] = range(len(self.types))
        if asked.gpu_type is not None and self.kinds != {asked.gpu_type}:
            free_indices = (
                index for index in free_indices if self.types[index] == asked.gpu_type
            )
        free_indices = filter(self._is_whole, free_indices)
        if self.last:
            free_indices = sorted(free_indices, key=lambda index: index in self.last)
        chosen_gpus = (
            near(list(free_indices), self.numa, asked.gpus)
            if self.numa
            else islice(free_indices, asked.gpus)
        )
        indices = tuple(chosen_gpus)
        return indices if len(indices) == asked.gpus else None

    def _pick_shared_gpu(
        self, asked: Resources, waste: Waste | None
    ) -> tuple[int, ...] | None:
        fits = [
            i
            for i in range(len(self.types))
            if self._can_fit_share(i, asked.gpu_type, asked.gpu_millis)
        ]

        def cost(index: int) -> tuple[float, int, int]:
            free_millis = self.free_gpu_millis[index]
            taken_millis, _ = self._taken_by(asked.gpu_millis, index)
            return (
                waste(taken_millis, free_millis) if waste else 0.0,
                free_millis,
                index,
            )

        return (min(fits, key=cost),) if fits else None

    def _can_fit_share(
        self, index: int, wanted_type: str | None, asked_millis: int
    ) -> bool:
        if wanted_type is not None and self.types[index] != wanted_type:
            return False
        millis, count = self._taken_by(asked_millis, index)
        holds = len(self.free_slices[index]) >= count
        return 0 < millis <= self.free_gpu_millis[index] and holds

    def _taken_by(self, asked_millis: int, index: int) -> tuple[int, int]:
        """Return how many thousandths of this GPU a share would take, and how many of
        the GPU's slices that is. Both are 0 if the share does not fit on this GPU."""
        cut = len(self.node.inventory.gpus[index].slices)
        if cut:
            count = slices_for(asked_millis, cut)
            return count * _WHOLE // cut, count
        return (asked_millis, 0) if self.shares else (0, 0)


def near(free: Sequence[int], numa: Sequence[int], wanted: int) -> list[int]:
    """Return the indices of `wanted` GPUs from `free`, on as few NUMA nodes as
    possible. `numa` gives each GPU's NUMA node.

    The choice is the NUMA node with the fewest free GPUs that are enough, the first of
    equals. If none has enough, all GPUs of the one with the most are taken, and the
    rest is chosen in the same way. The result is shorter than `wanted` if there are too
    few free GPUs.
    """
    groups: dict[int, list[int]] = {node: [] for node in numa}
    for index in free:
        groups[numa[index]].append(index)
    nearest: list[int] = []
    while any(groups.values()) and len(nearest) < wanted:
        missing = wanted - len(nearest)
        enough = [
            node for node, gpu_indices in groups.items() if len(gpu_indices) >= missing
        ]
        best_numa = (
            min(enough, key=lambda node: len(groups[node]))
            if enough
            else max(groups, key=lambda node: len(groups[node]))
        )
        nearest += groups.pop(best_numa)[:missing]
    return sorted(nearest)


def slices_for(asked_millis: int, cut: int) -> int:
    """Return how many of a GPU's `cut` equal slices a share needs. A rounding error of
    half a thousandth in the request is accepted: 3/7 is written as 0.429."""
    return max(1, (asked_millis * cut + _WHOLE - 1 - cut // 2) // _WHOLE)


def mark_of(node: Node, path: str) -> str | None:
    """Return the mark of the longest declared shared path that contains `path` on the
    node; else None. All nodes see the same object store."""
    if is_store_url(path):
        return STORE_MARK
    marks = dict(node.inventory.shared)
    return marks.get(covering(marks, path)) if marks else None


def covering(shared: Iterable[str], path: str) -> str:
    """Return the longest path in `shared` that is `path` or a folder above it; "" if
    there is no such path."""
    holding = (
        shared_path
        for shared_path in shared
        if path == shared_path or path.startswith(shared_path.rstrip("/") + "/")
    )
    return max(holding, key=len, default="")
