"""What is free on one node while a pass is being decided."""

from collections.abc import Iterable
from typing import Final

from corral.domain.attempt import Allocation, Seat
from corral.domain.ids import NodeId
from corral.domain.node import Node
from corral.domain.resources import Resources
from corral.domain.units import MILLIS_PER_GPU

_WHOLE: Final = MILLIS_PER_GPU


class NodeRoom:
    """A node's free GPUs (in thousandths, by index), CPU, memory and ports. It can pretend."""

    __slots__ = (
        "free_cpu_millis", "free_gpu_millis", "free_memory_bytes", "free_ports", "fullness", "id",
        "kinds", "node", "shares", "types", "whole",
    )  # fmt: skip

    def __init__(self, node: Node, taken: Iterable[Allocation] = ()) -> None:
        inventory = node.inventory
        self.node = node
        self.id: NodeId = node.id
        self.types = [gpu.type for gpu in inventory.gpus]
        self.kinds = frozenset(self.types)
        self.shares = inventory.gpu_shares
        self.free_gpu_millis = [_WHOLE] * len(inventory.gpus)
        self.free_cpu_millis = inventory.cpu_millis
        self.free_memory_bytes = inventory.memory_bytes
        self.free_ports = list(inventory.ports)
        self._count()
        for allocation in taken:
            self.take(allocation.seat)
            if allocation.port in self.free_ports:
                self.free_ports.remove(allocation.port)

    def seat(self, asked: Resources) -> Seat | None:
        """The best seat for these resources here, or None; nothing is taken yet.

        Whole GPUs: the lowest free indices. A share: the fullest GPU that still holds it.
        """
        if asked.cpu_millis > self.free_cpu_millis or asked.memory_bytes > self.free_memory_bytes:
            return None
        gpus = self._share(asked) if asked.is_share else self._wholes(asked)
        if gpus is None:
            return None
        return Seat(
            node=self.id,
            gpus=gpus,
            gpu_millis=asked.gpu_millis,
            cpu_millis=asked.cpu_millis,
            memory_bytes=asked.memory_bytes,
        )

    def take(self, seat: Seat) -> None:
        """Count the seat as taken. Indices that the node no longer has are left out."""
        each = seat.gpu_millis // len(seat.gpus) if seat.gpus else 0
        for index in seat.gpus:
            if index < len(self.free_gpu_millis):
                self.free_gpu_millis[index] -= each
        self.free_cpu_millis -= seat.cpu_millis
        self.free_memory_bytes -= seat.memory_bytes
        self._count()

    def _count(self) -> None:
        """`whole`: GPUs that are free as a whole. `fullness`: best fit takes the lowest first, so
        the fewest free GPUs, then the least free CPU, then the lowest id."""
        self.whole = self.free_gpu_millis.count(_WHOLE)
        self.fullness = (sum(self.free_gpu_millis), self.free_cpu_millis, self.id)

    def take_port(self) -> int | None:
        return self.free_ports.pop(0) if self.free_ports else None

    def mark_of(self, path: str) -> str | None:
        """The mark under which this node sees the path; None when it is not declared shared."""
        return mark_of(self.node, path)

    def _wholes(self, asked: Resources) -> tuple[int, ...] | None:
        if asked.gpus > self.whole:
            return None
        free = [i for i, millis in enumerate(self.free_gpu_millis) if millis == _WHOLE]
        if asked.gpu_type is not None and self.kinds != {asked.gpu_type}:
            free = [i for i in free if self.types[i] == asked.gpu_type]
        return tuple(free[: asked.gpus]) if len(free) >= asked.gpus else None

    def _share(self, asked: Resources) -> tuple[int, ...] | None:
        if not self.shares:
            return None
        fits = [
            i for i in range(len(self.types)) if self._fits(i, asked.gpu_type, asked.gpu_millis)
        ]
        return (min(fits, key=lambda i: (self.free_gpu_millis[i], i)),) if fits else None

    def _fits(self, index: int, wanted_type: str | None, millis: int) -> bool:
        right = wanted_type is None or self.types[index] == wanted_type
        return right and self.free_gpu_millis[index] >= millis


def mark_of(node: Node, path: str) -> str | None:
    """The mark of the longest declared shared path that holds `path` on the node."""
    holding = [
        (len(shared), mark)
        for shared, mark in node.inventory.shared
        if path == shared or path.startswith(shared.rstrip("/") + "/")
    ]
    return max(holding)[1] if holding else None
