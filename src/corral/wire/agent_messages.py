"""Messages between agents and heads. An agent opens two WebSockets. Both carry
MessagePack, one message in each frame.

`/v1/agents/heartbeats`: the agent sends Hello first, then Heartbeat each second and
after any change. The head answers each Heartbeat with HeartbeatAck, and sends Wanted,
the desired state, whenever its version rises or the agent has an older version.
`/v1/agents/logs`: the agent sends LogChunk, and the head answers LogAt with the offset
up to which the log is stored. After a reconnect the agent sends an empty chunk and
continues from the answer. Both connections carry the node's own token in the
Authorization header.
"""

from typing import Final

import msgspec

from corral.domain.content import ContentReport
from corral.domain.desired_state import DesiredState, Version
from corral.domain.ids import AttemptNumber, BootId, JobId, NodeId
from corral.domain.node_signal import Signal
from corral.domain.observed_state import Seen
from corral.domain.resources import Inventory
from corral.domain.telemetry import NodeSample
from corral.wire.content_messages import ContentNow
from corral.wire.signals import To

PROTOCOL: Final = 1
FRAME_BYTES: Final = 4 * 1024 * 1024  # longest frame that either side takes
# and an exit code: a terminal's WebSocket closes so when its shell has ended
ENDED: Final = 4000


def exit_code_of(closed_with: int | None) -> int | None:
    """Return the rank's exit code that is contained in the WebSocket close code of a
    terminal; None if it contains none."""
    code = -1 if closed_with is None else closed_with - ENDED
    return code if 0 <= code <= 255 else None


class Hello(msgspec.Struct, tag="hello", frozen=True, kw_only=True):
    """First message of a node that connects. A head that does not support the protocol
    closes the connection with code 4400 and a reason."""

    protocol: int
    node: NodeId
    boot: BootId
    address: str
    inventory: Inventory


class Heartbeat(msgspec.Struct, tag="heartbeat", frozen=True, kw_only=True):
    """The agent's complete report about its node. `inventory` is set only if it has
    changed since the last message, `sample` only if the sensors have been read since
    then, and `content` only if it has changed. `signals` are repeated until the head
    has recorded them."""

    number: int
    version: Version | None  # of the newest Wanted that it obeys
    seen: tuple[Seen, ...] = ()
    inventory: Inventory | None = None
    sample: NodeSample | None = None
    signals: tuple[Signal, ...] = ()
    content: ContentReport | None = None


class HeartbeatAck(
    msgspec.Struct, tag="heartbeat_ack", frozen=True, omit_defaults=True
):
    """Confirmation that the head received the heartbeat of this number.

    `heads`: addresses of all heads, the leader first. They are sent once per
    connection, and again after a change. `signals`: signals up to this number are
    recorded. `wall`: the head's clock; 0 from an older head. `users`: users who may
    submit jobs, whose accounts the node looks up. They are sent at the same times as
    `heads`.
    """

    number: int
    heads: tuple[str, ...] = ()
    signals: int = 0
    wall: float = 0.0
    users: tuple[str, ...] = ()


class WantedNow(msgspec.Struct, tag="wanted", frozen=True):
    wanted: DesiredState


class AttachNow(msgspec.Struct, tag="attach", frozen=True, kw_only=True):
    """Request for a terminal.

    The agent connects to `/v1/agents/attach/{session}`, and copies raw bytes in both
    directions. `shell` True: a shell on a pty next to the ranks, in their containment
    and environment. If `command` is given, /bin/sh runs it instead. `shell` False: the
    standard input of the rank, and its output from now on.
    """

    session: str
    job: JobId
    attempt: AttemptNumber
    rank: int
    shell: bool
    rows: int = 24
    columns: int = 80
    command: str = ""


class SignalNow(msgspec.Struct, tag="signal", frozen=True, kw_only=True):
    """Request to send a signal to processes of the attempt on this node.

    `to`: the ranks and all processes that they have started (`ranks`), only the shell
    of each rank (`batch`), or both (`all`).
    """

    job: JobId
    attempt: AttemptNumber
    number: int
    to: To = "ranks"


class FilesNow(msgspec.Struct, tag="files", frozen=True, kw_only=True):
    """Request for the list of an attempt's outputs (`path` None), or for one output as
    a tar. The agent connects to `/v1/agents/attach/{session}` and sends frames of
    `wire.output_frames`."""

    session: str
    job: JobId
    attempt: AttemptNumber
    path: str | None = None


class StacksNow(msgspec.Struct, tag="stacks", frozen=True, kw_only=True):
    """Request for the stacks of an attempt's Python processes. The agent connects to
    `/v1/agents/attach/{session}` and sends frames of `wire.output_frames`, whose data
    are those of `wire.stack_frames`."""

    session: str
    job: JobId
    attempt: AttemptNumber


class LogChunk(msgspec.Struct, tag="chunk", frozen=True, kw_only=True):
    """A part of one rank's log, beginning at `offset`. Bytes missing before `offset`
    were dropped by the size limit."""

    job: JobId
    attempt: AttemptNumber
    rank: int
    offset: int
    data: bytes


class LogAt(msgspec.Struct, tag="at", frozen=True, kw_only=True):
    """Report of the head that it stores this log up to `offset`."""

    job: JobId
    attempt: AttemptNumber
    rank: int
    offset: int


encode: Final = msgspec.msgpack.Encoder().encode
from_agent: Final = msgspec.msgpack.Decoder(Hello | Heartbeat | LogChunk).decode
from_head: Final = msgspec.msgpack.Decoder(
    HeartbeatAck
    | WantedNow
    | AttachNow
    | SignalNow
    | FilesNow
    | StacksNow
    | ContentNow
    | LogAt
).decode
