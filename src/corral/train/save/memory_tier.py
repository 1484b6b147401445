"""Saves in the memory of the nodes: they survive the ranks, and are made more often
than durable ones."""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from torch.distributed.checkpoint.planner import WriteItem

from corral.domain.errors import Trouble
from corral.train.process_group import ProcessGroup
from corral.train.save.memory_folder import SLOTS, MemoryFolder, MemorySave
from corral.train.save.memory_room import (
    MemoryNeed,
    free_memory_bytes,
    shortage,
)
from corral.train.save.staging import Staging

_BOOT: Final = "/proc/sys/kernel/random/boot_id"


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeSeat:
    """Position of a rank among the ranks that share a memory. `node` names the memory;
    the first of the ranks leads."""

    node: str
    position: int
    ranks: int

    @property
    def leads(self) -> bool:
        return self.position == 0


class MemoryTier:
    """Saves in the memory of this node, as one rank of an attempt sees them. Its
    methods that take a group must be called by all ranks together."""

    def __init__(self, folder: MemoryFolder, seat: NodeSeat, rank: int) -> None:
        self.folder = folder
        self.seat = seat
        self.step: int | None = None  # of the newest save in memory
        self._rank = rank
        self._next = 0
        self._resumed_slot: int | None = None  # of this attempt, in use
        self._stagings = [Staging(rank, folder.slot(slot)) for slot in range(SLOTS)]

    @staticmethod
    def join(
        path: Path | None,
        attempt: int,
        gang: ProcessGroup,
        *,
        passed_over_attempt: int = 0,
    ) -> "MemoryTier | None":
        """Return the tier of this rank; None on all ranks if a rank has no such memory.
        Saves of the passed over attempt and older ones are not used. All ranks must
        call this together."""
        names = gang.gather(_memory_name(path))
        seats: list[NodeSeat | None] = [None] * gang.world_size
        if all(names):
            for rank, name in enumerate(names):
                earlier = names[:rank].count(name)
                seats[rank] = NodeSeat(
                    node=name, position=earlier, ranks=names.count(name)
                )
        seat = gang.hand_out(seats)
        if seat is None or path is None:
            return None
        folder = MemoryFolder(
            root=path, attempt=attempt, passed_over_attempt=passed_over_attempt
        )
        tier = MemoryTier(folder, seat, gang.rank)
        tier.folder.open()
        return tier

    @property
    def staging(self) -> Staging:
        """Return the memory for the next save."""
        return self._stagings[self._next]

    def begin_after(self, save: MemorySave | None) -> None:
        """Free the memory of older saves, but not that of the save from which this
        attempt resumes. The next save does not replace it either."""
        directory = None if save is None else save.directory
        if directory is not None and directory.parent == self.folder.directory:
            self._resumed_slot = int(directory.name.removeprefix("slot-"))
            self._next = 1 - self._resumed_slot
        if self.seat.leads:
            self.folder.forget_others(directory)

    def allocate(
        self, state: dict[str, Any], items: Sequence[WriteItem], gang: ProcessGroup
    ) -> str:
        """Allocate the memory of the next saves on all nodes. Return a text about the
        problem, the same on all ranks, or "" if there was none."""
        needs = gang.gather(self._need(items))
        trouble = gang.share(shortage(needs) if gang.leads else "")
        if trouble:
            return str(trouble)
        free_slots = [slot for slot in range(SLOTS) if slot != self._resumed_slot]
        trouble = agree(self._empty(free_slots), gang)
        if not trouble:
            trouble = agree(self._fill(free_slots, state, items), gang)
        self._resumed_slot = None
        return trouble

    def _need(self, items: Sequence[WriteItem]) -> MemoryNeed:
        sizes = [
            item.tensor_data.chunk.sizes.numel()
            * item.tensor_data.properties.dtype.itemsize
            for item in items
            if item.tensor_data is not None
        ]
        try:
            free_bytes = free_memory_bytes(self.folder.root)
        except OSError:
            free_bytes = 0
        return MemoryNeed(
            node=self.seat.node,
            needed_bytes=SLOTS * sum(sizes),
            free_bytes=free_bytes,
        )

    def _empty(self, slots: Sequence[int]) -> str:
        try:
            for slot in slots if self.seat.leads else ():
                self.folder.empty(slot)
        except OSError as error:
            return f"{error.strerror} ({error.filename})"
        return ""

    def _fill(
        self, slots: Sequence[int], state: dict[str, Any], items: Sequence[WriteItem]
    ) -> str:
        try:
            for slot in slots:
                self._stagings[slot] = Staging(self._rank, self.folder.slot(slot))
                self._stagings[slot].allocate(state, items)
        except (OSError, RuntimeError, MemoryError) as error:
            return str(error)
        return ""

    def publish(
        self, step: int, index: bytes, manifest: bytes, gang: ProcessGroup
    ) -> str:
        """Make the staged save complete on all nodes, and the save before it
        incomplete. Return a text about the problem, or "" if there was none."""
        trouble = agree(self._publish(index, manifest), gang)
        if trouble:
            return trouble
        self.step = step
        self._next = 1 - self._next
        if self.seat.leads:
            self.folder.retract(self._next)
            self.folder.forget_others(None)
        agree("", gang)  # no rank stages before it is retracted
        return ""

    def _publish(self, index: bytes, manifest: bytes) -> str:
        if not self.seat.leads:
            return ""
        try:
            self.folder.publish(self._next, index, manifest)
        except (OSError, Trouble) as error:
            return f"the memory of a node: {error}"
        return ""

    def clear(self) -> None:
        """Free the memory of all saves of the job on this node."""
        if self.seat.leads:
            self.folder.clear()


def agree(trouble: str, gang: ProcessGroup) -> str:
    """Return the first text of the ranks that is not empty, on all ranks. All ranks
    must call this together."""
    troubles = [text for text in gang.gather(trouble) if text]
    return str(gang.share(troubles[0] if troubles else ""))


def _memory_name(path: Path | None) -> str:
    """Return a name that is the same for the ranks that share the memory at this path;
    "" without such a memory."""
    if path is None:
        return ""
    try:
        status = path.stat()
        if not os.access(path, os.W_OK | os.X_OK):
            return ""
        return f"{Path(_BOOT).read_text().strip()}:{status.st_dev}:{status.st_ino}"
    except OSError:
        return ""
