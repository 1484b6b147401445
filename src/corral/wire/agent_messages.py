"""The agents' channel: two WebSockets that an agent dials, both MessagePack, one
message a frame.

`/v1/agents/heartbeats`: Hello first, then Heartbeat each second and on any change; the head
answers HeartbeatAck to each Heartbeat and sends Wanted whenever its version rises or the agent's is
behind. `/v1/agents/logs`: LogChunk from the agent, LogAt from the head: how far that
log is kept. After a reconnect the agent begins with an empty chunk and goes on from the
answer. Both carry the node's own token in the Authorization header.
"""

from typing import Final

import msgspec

from corral.domain.desired_state import DesiredState, Version
from corral.domain.ids import AttemptNumber, BootId, JobId, NodeId
from corral.domain.node_signal import Signal
from corral.domain.observed_state import Seen
from corral.domain.resources import Inventory
from corral.domain.telemetry import NodeSample
from corral.wire.signals import To

PROTOCOL: Final = 1
FRAME_BYTES: Final = 4 * 1024 * 1024  # longest frame that either side takes
# and an exit code: a terminal's WebSocket closes so when its shell has ended
ENDED: Final = 4000


def exit_code_of(closed_with: int | None) -> int | None:
    """Return the exit code in the closing code of a terminal; None if it holds none."""
    code = -1 if closed_with is None else closed_with - ENDED
    return code if 0 <= code <= 255 else None


class Hello(msgspec.Struct, tag="hello", frozen=True, kw_only=True):
    """Greeting of a node that dials. A head that does not support the protocol closes
    with code 4400 and a reason."""

    protocol: int
    node: NodeId
    boot: BootId
    address: str
    inventory: Inventory


class Heartbeat(msgspec.Struct, tag="heartbeat", frozen=True, kw_only=True):
    """All that the agent sees. `inventory` only when it has changed since the last
    message, `sample` when the sensors have been read since; signals until the head has
    recorded them."""

    number: int
    version: Version | None  # of the newest Wanted that it obeys
    seen: tuple[Seen, ...] = ()
    inventory: Inventory | None = None
    sample: NodeSample | None = None
    signals: tuple[Signal, ...] = ()


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

    The agent dials `/v1/agents/attach/{session}`, and copies raw bytes both ways.
    `shell` True: a shell on a pty next to the ranks, in their containment and
    environment. If `command` is given, /bin/sh runs it instead. `shell` False: the
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
    """Somebody sends a signal to what runs of the attempt on this node: to its ranks
    and all that they have started, to the shell of each alone (`batch`), or to both
    (`all`)."""

    job: JobId
    attempt: AttemptNumber
    number: int
    to: To = "ranks"


class FilesNow(msgspec.Struct, tag="files", frozen=True, kw_only=True):
    """Somebody wants the list of an attempt's outputs (`path` None), or one of them as
    a tar: dial `/v1/agents/attach/{session}` and send frames of
    `wire.output_frames`."""

    session: str
    job: JobId
    attempt: AttemptNumber
    path: str | None = None


class LogChunk(msgspec.Struct, tag="chunk", frozen=True, kw_only=True):
    """Bytes of one rank's log from `offset` on. A gap before it was dropped by the
    cap."""

    job: JobId
    attempt: AttemptNumber
    rank: int
    offset: int
    data: bytes


class LogAt(msgspec.Struct, tag="at", frozen=True, kw_only=True):
    """The head keeps this log up to `offset`."""

    job: JobId
    attempt: AttemptNumber
    rank: int
    offset: int


encode: Final = msgspec.msgpack.Encoder().encode
from_agent: Final = msgspec.msgpack.Decoder(Hello | Heartbeat | LogChunk).decode
from_head: Final = msgspec.msgpack.Decoder(
    HeartbeatAck | WantedNow | AttachNow | SignalNow | FilesNow | LogAt
).decode
