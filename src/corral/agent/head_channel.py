"""Heartbeats: the agent reports all it sees each second and on any change; the head
answers with the desired state."""

import asyncio
import contextlib
import logging
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final, Protocol

from websockets.asyncio.client import ClientConnection

from corral.agent.connection import first_of
from corral.agent.heartbeat import encoded
from corral.domain.content import ContentReport
from corral.domain.desired_state import DesiredState, Version
from corral.domain.node_signal import Signal
from corral.domain.observed_state import Seen
from corral.domain.resources import Inventory
from corral.domain.telemetry import NodeSample
from corral.wire.agent_messages import (
    AttachNow,
    FilesNow,
    Heartbeat,
    HeartbeatAck,
    Hello,
    SignalNow,
    StacksNow,
    WantedNow,
    encode,
    from_head,
)
from corral.wire.content_messages import ContentNow

HEARTBEATS: Final = "/v1/agents/heartbeats"
BEAT_SECONDS: Final = 1.0
GATHER_SECONDS: Final = 0.005  # changes that come together travel together
# a head that acknowledges no beat for this long is dialled again
UNHEARD_SECONDS: Final = 5.0
log = logging.getLogger(__name__)


class ChannelNode(Protocol):
    """Interface: the node's side of the channel to the head."""

    def hello(self) -> Hello: ...

    def seen(self) -> tuple[Seen, ...]: ...

    def version(self) -> Version | None: ...

    def inventory(self) -> Inventory: ...

    def sample(self) -> NodeSample | None:
        """Return the newest sample of the sensors."""
        ...

    def content(self) -> ContentReport:
        """Return what the node keeps on its disk, and what it is fetching."""
        ...

    def signals(self) -> tuple[Signal, ...]:
        """Return the signals of the node that the head has not recorded yet."""
        ...

    def heard(self, sent_at: float) -> None:
        """Record that the head has received the heartbeat sent at `sent_at`.

        `sent_at`: seconds of the agent's clock.
        """
        ...

    def recorded(self, signals: int, wall: float, trip_seconds: float) -> None:
        """Record that the head has stored the node's signals with numbers up to
        `signals`.

        `wall` is the head's clock, read within a round trip of `trip_seconds` that ends
        now. It is 0 for a head that does not report its clock.
        """
        ...

    def named(self, heads: tuple[str, ...]) -> None:
        """Store the addresses of all heads, the leading head first."""
        ...

    def users(self, names: tuple[str, ...]) -> None:
        """Store the names of the users who may submit jobs."""
        ...

    def wanted(self, wanted: DesiredState) -> None: ...

    def attach(self, request: AttachNow) -> None: ...

    def signal(self, request: SignalNow) -> None: ...

    def send_files(self, request: FilesNow) -> None: ...

    def request_content(self, request: ContentNow) -> None: ...

    def send_stacks(self, request: StacksNow) -> None: ...


@dataclass(slots=True, kw_only=True)
class Heartbeats:
    """Sends heartbeats over one connection at a time. `clock` counts seconds, including
    the machine's sleep."""

    node: ChannelNode
    clock: Callable[[], float]
    _changed: asyncio.Event = field(default_factory=asyncio.Event)
    _number: int = 0
    _said: Inventory | None = None
    _sampled: NodeSample | None = None
    _content: ContentReport | None = None
    _sent: OrderedDict[int, float] = field(default_factory=OrderedDict)
    _heard_at: float = 0.0
    _left_out: tuple[str, ...] = ()

    def wake(self) -> None:
        """Send a heartbeat at once, because something has changed."""
        self._changed.set()

    async def talk(self, connection: ClientConnection) -> None:
        """Send heartbeats and receive messages until the connection is lost.

        Raises: OSError, ValueError, WebSocketException from the connection.
        """
        hello = self.node.hello()
        await connection.send(encode(hello))
        self._said, self._sampled, self._content = hello.inventory, None, None
        self._sent.clear()
        self._heard_at = self.clock()
        self._changed.set()
        await first_of(
            self._run_beat_loop(connection), self._receive_messages(connection)
        )

    async def _run_beat_loop(self, connection: ClientConnection) -> None:
        while self.clock() - self._heard_at < UNHEARD_SECONDS:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(BEAT_SECONDS):
                    await self._changed.wait()
            async with asyncio.timeout(UNHEARD_SECONDS):
                await self._send_beat(connection)
            await asyncio.sleep(GATHER_SECONDS)
        raise TimeoutError(
            f"the head has answered no heartbeat for {UNHEARD_SECONDS:g} s"
        )

    async def _send_beat(self, connection: ClientConnection) -> None:
        self._changed.clear()
        self._number += 1
        inventory, sample = self.node.inventory(), self.node.sample()
        content = self.node.content()
        beat = Heartbeat(
            number=self._number,
            version=self.node.version(),
            seen=self.node.seen(),
            inventory=None if inventory == self._said else inventory,
            sample=None if sample is self._sampled else sample,
            signals=self.node.signals(),
            content=None if content == self._content else content,
        )
        self._sent[beat.number] = self.clock()
        while len(self._sent) > 4096:
            self._sent.popitem(last=False)
        frame, left_out = encoded(beat)
        self._warn(left_out)
        await connection.send(frame)
        self._said, self._sampled, self._content = inventory, sample, content

    def _warn(self, left_out: tuple[str, ...]) -> None:
        """Log which parts were left out of heartbeats. The same parts are logged only
        once in a row."""
        if left_out and left_out != self._left_out:
            log.warning(
                "left out of heartbeats, not encodable or too large: %s",
                "; ".join(left_out),
            )
        self._left_out = left_out

    async def _receive_messages(self, connection: ClientConnection) -> None:
        async for frame in connection:
            match from_head(frame if isinstance(frame, bytes) else frame.encode()):
                case HeartbeatAck() as heard:
                    self._hear(heard)
                    if heard.heads:
                        self.node.named(heard.heads)
                    if heard.users:
                        self.node.users(heard.users)
                case WantedNow(wanted=wanted):
                    self.node.wanted(wanted)
                case AttachNow() as request:
                    self.node.attach(request)
                case SignalNow() as request:
                    self.node.signal(request)
                case FilesNow() as request:
                    self.node.send_files(request)
                case ContentNow() as request:
                    self.node.request_content(request)
                case StacksNow() as request:
                    self.node.send_stacks(request)
                case other:
                    raise ValueError(
                        f"unexpected message among heartbeats: {type(other).__name__}"
                    )

    def _hear(self, heard: HeartbeatAck) -> None:
        self._heard_at = self.clock()
        sent_at = self._sent.pop(heard.number, None)
        for older in [number for number in self._sent if number < heard.number]:
            del self._sent[older]
        if sent_at is not None:
            self.node.heard(sent_at)
            self.node.recorded(heard.signals, heard.wall, self._heard_at - sent_at)
