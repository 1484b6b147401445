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
    """Resources of a node that programs outside Corral hold."""

    gpus: int = 0
    cpu_millis: int = 0
    memory_bytes: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class LentNode:
    """A node of the batch system. `inventory` is the node's whole capacity, including
    what programs outside Corral hold (`foreign`).

    `closed`: why the batch system starts no new work on the node; "" if it does.
    `down`: the proof that nothing runs on the node any more; "" for a node that may be
    alive. `silent`: the node does not answer and the batch system reports nothing more
    about it; the head counts the silence. `gone`: the node is down, and the batch
    system no longer has it.
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
    """Report of the batch system about one attempt. `handle`: the batch system's own
    name for the attempt's job.

    `reason`: why the attempt waits, in the words of the batch system. `blame`: why the
    attempt ended if it did not end by itself: it was preempted, ran out of time, lost a
    node, or was cancelled by a user. `blame_is_infra` is False if the job itself caused
    the end, for example by using more memory than it asked for. `blame_on`: the system
    that caused the end, for example "Slurm"; "" if a node or the job itself caused it.
    `no_room`: what the nodes lack for the attempt, according to the batch system, if
    the attempt waits only for that; "" if it waits for something else.
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
    """State of the batch system at one moment. `kept`: attempts that have a folder or a
    Secret, so they were submitted, or were about to be. `unsent`: attempts that have a
    folder or a Secret and were certainly never submitted. `troubles`: sentences about
    the parts of the batch system that cannot be used now, while the rest can be used.
    """

    nodes: tuple[LentNode, ...]
    tickets: tuple[Ticket, ...]
    kept: tuple[AttemptKey, ...] = ()
    unsent: tuple[AttemptKey, ...] = ()
    troubles: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class PartFiles:
    """Files in the folder of one part, which is the attempt on one node: node.json and
    the part's token, readable only by their owner.

    `early`: the launch with which the part's ranks start before the part's agent is
    there. The folder then also needs the head's archive `workdir`. If `early` is b"",
    the ranks wait for the agent, as they do where an early launch is not possible.
    """

    settings: bytes
    token: bytes
    early: bytes = b""
    workdir: Path | None = None


class BatchSystem(Protocol):
    """Interface to one batch system. Each call is bounded in time and can be repeated
    safely."""

    async def look(self) -> BatchSnapshot:
        """Return the state of the batch system. Raises: Trouble when the batch system
        does not answer."""
        ...

    async def submit(
        self, gang: Sequence[Launch], parts: Mapping[NodeId, PartFiles]
    ) -> None:
        """Submit the attempt as a whole, unless it has been submitted already: an
        existing job of the same name stays as it is. `gang` is in the order of node
        ranks. The attempt's folders are written first (`BatchSnapshot.kept`).

        Raises: Refusal when the batch system will never accept the attempt; Trouble
        when the call should be tried again.
        """
        ...

    async def withhold(self, key: AttemptKey) -> None:
        """Prevent the attempt's ranks that have not begun from starting. Raises:
        Trouble."""
        ...

    async def cancel(self, key: AttemptKey) -> None:
        """End the attempt now, whatever its state; do nothing if it is over. Raises:
        Trouble."""
        ...

    async def forget(self, key: AttemptKey) -> None:
        """Remove the folders and Secrets of an attempt that is over and recorded.
        Raises: Trouble."""
        ...

    def fitted(self, launch: Launch) -> Launch | None:
        """Return the launch as the agent of the attempt sees it on its node: with GPUs
        numbered as the batch system grants them, and with the addresses by which ranks
        reach each other. Return None while the numbers or addresses are not known yet.
        """
        ...

    def settings_of(self, part: NodeId, launch: Launch) -> NodeSettings:
        """Return the content of node.json for the launch on the node `part`."""
        ...

    async def close(self) -> None: ...


class PlacingDriver(BatchSystem, Protocol):
    """Interface to a batch system that places jobs itself."""

    async def ask(self, group: Sequence[ExternalCandidate]) -> None:
        """Let the batch system choose the nodes for the group and submit it. The group
        is one job, or equal indices of one array; indices are submitted as an array. An
        existing job of the same name stays as it is. No attempt begins before `equip`
        has been called for it.

        Raises: Refusal when the batch system does not accept the group as it is;
        Trouble when the call should be tried again.
        """
        ...

    async def equip(
        self, gang: Sequence[Launch], parts: Mapping[NodeId, PartFiles]
    ) -> None:
        """Write what the attempt's agents need to the nodes that the batch system gave
        the attempt. The attempt begins after that. The call is idempotent.

        Raises: Trouble.
        """
        ...
