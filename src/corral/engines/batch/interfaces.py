"""Interface of a batch system."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Protocol

from corral.domain.desired_state import Launch
from corral.domain.external_candidate import ExternalCandidate
from corral.domain.ids import BootId, NodeId
from corral.domain.observed_state import AttemptKey
from corral.domain.resources import Inventory
from corral.wire.node import NodeSettings


@dataclass(frozen=True, slots=True, kw_only=True)
class Foreign:
    """Resources that programs outside Corral hold on a node."""

    gpus: int = 0
    cpu_millis: int = 0
    memory_bytes: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class LentNode:
    """A node of the batch system. `inventory` is all that it has, also what others hold
    of it (`foreign`).

    `closed`: why the batch system gives it nothing new now; "" when it does.
    `down`: the proof that nothing runs there any more; "" for a node that may be alive.
    A node that merely does not answer is `silent`: it says nothing, and the head counts
    its silence. `gone`: it is down, and the batch system has it no more.
    """

    node: NodeId
    boot: BootId
    address: str
    inventory: Inventory
    foreign: Foreign = field(default_factory=Foreign)
    closed: str = ""
    down: str = ""
    silent: bool = False
    gone: bool = False


class TicketState(StrEnum):
    WAITING = "waiting"  # the batch system has it in its queue
    RUNNING = "running"
    ENDED = "ended"  # nothing of it is left on any node


@dataclass(frozen=True, slots=True, kw_only=True)
class Ticket:
    """Report of the batch system about one attempt. `handle`: its own name for it.

    `reason`: why it waits, in the batch system's words. `blame`: why it ended, when it
    was not by itself: preempted, out of time, a node failed, a user cancelled it.
    `blame_is_infra` False: the job's own doing, such as more memory than it asked for.
    `blame_on`: whose doing it was, where it is not a node's ("Slurm"). `no_room`: what
    its nodes lack for it, by the batch system, while it waits for just that; "" when it
    waits for something else.
    """

    key: AttemptKey
    handle: str
    state: TicketState
    nodes: tuple[NodeId, ...] = ()
    reason: str = ""
    blame: str = ""
    blame_is_infra: bool = True
    blame_on: str = ""
    no_room: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchSnapshot:
    """All that the batch system says now. `kept`: attempts of which a folder or a
    Secret is left: they were handed over, or were about to be. `unsent`: those of which
    that is left and which were never handed over, for certain. `troubles`: sentences
    about what of the batch system cannot be used now, while the rest of it can."""

    nodes: tuple[LentNode, ...]
    tickets: tuple[Ticket, ...]
    kept: tuple[AttemptKey, ...] = ()
    unsent: tuple[AttemptKey, ...] = ()
    troubles: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class PartFiles:
    """The folder of one part: node.json and its token, readable by its owner alone.

    `early`: what its ranks begin with before its agent is there, for which `workdir` is
    an archive of the head's to lie next to it; b"": they wait for it, as where that
    cannot be.
    """

    settings: bytes
    token: bytes
    early: bytes = b""
    workdir: Path | None = None


class BatchSystem(Protocol):
    """The way to one batch system. Each call is bounded in time, and may be repeated at
    will."""

    async def look(self) -> BatchSnapshot:
        """Raises: Trouble when it does not answer."""
        ...

    async def submit(
        self, gang: Sequence[Launch], parts: Mapping[NodeId, PartFiles]
    ) -> None:
        """Hand the attempt over as a whole, unless it has been already: what is there
        by its name stays as it is. `gang` is by node rank. Its folders are kept first
        (`BatchSnapshot.kept`).

        Raises: Refusal when the batch system will never take it; Trouble: try again.
        """
        ...

    async def withhold(self, key: AttemptKey) -> None:
        """Prevent the ranks that have not begun from starting. Raises: Trouble."""
        ...

    async def cancel(self, key: AttemptKey) -> None:
        """End it now, whatever it does; harmless when it is over. Raises: Trouble."""
        ...

    async def forget(self, key: AttemptKey) -> None:
        """It is over and recorded: its folders and Secrets go. Raises: Trouble."""
        ...

    def fitted(self, launch: Launch) -> Launch | None:
        """The launch as its part shall see it: GPUs counted as they are granted there,
        addresses as ranks know each other there. None while those are not known yet."""
        ...

    def settings_of(self, part: NodeId, launch: Launch) -> NodeSettings:
        """node.json of the part."""
        ...

    async def close(self) -> None: ...


class PlacingDriver(BatchSystem, Protocol):
    """The way to a batch system that places by itself."""

    async def ask(self, group: Sequence[ExternalCandidate]) -> None:
        """Let it place them: one job, or indices of one array that are alike, as an
        array of its own. What is there by its name stays as it is. Each begins nothing
        before it is equipped.

        Raises: Refusal when the batch system does not take it as it is; Trouble: try
        again.
        """
        ...

    async def equip(
        self, gang: Sequence[Launch], parts: Mapping[NodeId, PartFiles]
    ) -> None:
        """Put what its agents need on the nodes that it was given; then it begins.
        Idempotent.

        Raises: Trouble.
        """
        ...
