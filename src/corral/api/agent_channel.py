"""Connections of the nodes' agents: heartbeats arrive, desired state is sent, and logs
arrive on a second connection. A node has one connection of each kind."""

import asyncio
import contextlib
import re
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from typing import Final, Protocol

from starlette.websockets import WebSocket, WebSocketDisconnect

from corral.api.auth import caller_of
from corral.api.desired_state_frames import word_frame
from corral.api.kept_logs import LogKeeper
from corral.api.node_messages import AttemptRequest, Taking, Talk, recorded
from corral.api.node_trust import ranks_of
from corral.control import Control
from corral.domain.desired_state import DesiredState
from corral.domain.errors import Trouble
from corral.domain.ids import AttemptNumber, BootId, JobId, NodeId, TokenId, UserName
from corral.domain.observed_state import NodeFacts
from corral.domain.pilot import is_part, part_of
from corral.ports.log import HeadLogger
from corral.wire.agent_messages import (
    FRAME_BYTES,
    PROTOCOL,
    AttachNow,
    FilesNow,
    Heartbeat,
    HeartbeatAck,
    Hello,
    LogAt,
    LogChunk,
    SignalNow,
    StacksNow,
    encode,
)
from corral.wire.bounded_decoding import WRONG, BoundedMessage, read_frame
from corral.wire.content_messages import ContentNow

log = HeadLogger("corral.agents")

HELLO_SECONDS: Final = 10.0
ANNOUNCE_SECONDS: Final = 1.0  # that a head which ends waits for slow agents
NO_HEARTBEAT: Final = 0  # agents number their heartbeats from 1
# after this time without heartbeats, an agent loses its place
GONE_SECONDS: Final = 3.0
AGAIN_SECONDS: Final = 2.0  # an agent behind for this time gets the state again
LATER: Final = 1013
OLD_PROTOCOL: Final = 4400
NOT_YOURS: Final = 4403
TWIN: Final = 4409
MALFORMED: Final = 4422
REVOKED: Final = 4401
REPLACED: Final = "a newer connection of the same agent replaced this one"
_ADDRESS: Final = re.compile(r"[A-Za-z0-9.:_%-]{1,253}", re.ASCII)


class Closing(Exception):
    """Error that closes an agent's connection with this code and reason."""

    def __init__(self, code: int, why: str) -> None:
        super().__init__(why)
        self.code = code
        self.why = why


class NodeLender(Protocol):
    """The engine that runs agents for single attempts on nodes from a batch system.
    These agents (the parts of a node) report to the engine and get their desired state
    from it, not from the head's control."""

    def hear_part(self, word: NodeFacts) -> None: ...

    def part_word(self, part: NodeId) -> DesiredState | None: ...


class Channels:
    """The connections of all agents, and the newest desired state of each node or part
    of a node.

    `push` may be called from the head's loop at any moment. It sends the desired state
    at once; if a slow agent has not received an earlier state yet, that state is
    replaced. `amend` lets the engine add to a node's report what only the engine knows.
    `renewed` is called with each token that replaces an agent's own token.
    """

    def __init__(self) -> None:
        self._talks: dict[NodeId, Talk] = {}
        self._newest: dict[NodeId, DesiredState] = {}
        self.lender: NodeLender | None = None
        self.amend: Callable[[NodeFacts], NodeFacts] = lambda word: word
        self.renewed: Callable[[NodeId, TokenId], None] = lambda node, token: None
        # of several, where each serves; the one that leads first
        self.heads: tuple[str, ...] = ()
        self.users: tuple[UserName, ...] = ()  # whose accounts nodes look up
        self.taking = Taking()

    @property
    def refused(self) -> Counter[str]:
        """Return how many messages were refused for each reason: malformed, twin,
        not_yours, out_of_bounds, ..."""
        return self.taking.refused

    def push(self, wanted: DesiredState) -> None:
        """Send the desired state to the node's agent, now or when it connects. A state
        older than the stored one is dropped."""
        desired_state = self._newest.get(wanted.node)
        if desired_state is not None and desired_state.version > wanted.version:
            return
        self._newest[wanted.node] = wanted
        if talk := self._talks.get(wanted.node):
            talk.wake.set()

    def forget(self) -> None:
        """Drop all desired states, because this head's term as leader is over."""
        self._newest.clear()
        self.users = ()

    def is_connected(self, node: NodeId) -> bool:
        return node in self._talks

    def attach(self, node: NodeId, request: AttachNow | FilesNow | StacksNow) -> bool:
        """Ask the agent of the node, or of the attempt's part of it, to open a
        connection; return False if no such agent is connected."""
        return not self._ask([node], request)

    def signal(self, nodes: Collection[NodeId], request: SignalNow) -> Sequence[NodeId]:
        """Let the agents of all these nodes, or of the attempt's parts of them, send
        the signal. If any agent is not connected, no signal is sent, and the nodes
        without a connected agent are returned."""
        return self._ask(nodes, request)

    def content(
        self, nodes: Collection[NodeId], requests: Sequence[ContentNow]
    ) -> Sequence[NodeId]:
        """Send requests about content to these nodes. If any agent is not connected,
        nothing is sent, and the nodes without a connected agent are returned."""
        if away := [node for node in nodes if node not in self._talks]:
            return away
        for node in nodes:
            self._talks[node].requests += requests
            self._talks[node].wake.set()
        return ()

    def _ask(
        self, nodes: Collection[NodeId], request: AttemptRequest
    ) -> Sequence[NodeId]:
        key = (request.job, request.attempt)
        talks = {
            node: self._talks.get(part_of(node, key)) or self._talks.get(node)
            for node in nodes
        }
        if unreachable_nodes := [node for node, talk in talks.items() if talk is None]:
            return unreachable_nodes
        for talk in talks.values():
            assert talk is not None
            talk.requests.append(request)
            talk.wake.set()
        return ()

    def drop(self, node: NodeId, why: str) -> None:
        """Close the node's connection, and drop its desired state."""
        self._newest.pop(node, None)
        if talk := self._talks.get(node):
            talk.over = why
            talk.wake.set()

    async def beats(self, socket: WebSocket, control: Control) -> None:
        """Receive the heartbeats of one agent, until the connection is lost."""
        talk: Talk | None = None
        try:
            await socket.accept()
            talk = await self._receive_hello(socket, control)
            telling = asyncio.create_task(self._send_updates(talk))
            try:
                await self._receive_beats(talk, control)
            finally:
                telling.cancel()
                with contextlib.suppress(
                    asyncio.CancelledError, WebSocketDisconnect, OSError
                ):
                    await telling
        except Closing as closing:
            await _close_socket(socket, closing.code, closing.why)
        except Trouble as trouble:
            await _close_socket(socket, LATER, trouble.message)
        except (WebSocketDisconnect, OSError, RuntimeError):
            pass  # it is gone; that is all there is to know
        finally:
            if talk is not None and self._talks.get(talk.node) is talk:
                del self._talks[talk.node]
                self._mark_node_left(talk.node, control)

    def _mark_node_left(self, node: NodeId, control: Control) -> None:
        """Record that the node's connection is lost. For a part of a node, drop its
        desired state, because parts exist only for one attempt."""
        if is_part(node):
            self._newest.pop(node, None)
            control.sensed.left(node, control.clock.wall())
        else:
            control.left(node)

    async def _receive_hello(self, socket: WebSocket, control: Control) -> Talk:
        try:
            async with asyncio.timeout(HELLO_SECONDS):
                hello = self._read(await frame_of(socket)).message
        except TimeoutError:
            raise self._closing(
                "malformed",
                MALFORMED,
                f"the agent sent no hello message within {HELLO_SECONDS:.0f} s",
            ) from None
        if not isinstance(hello, Hello):
            raise self._closing(
                "malformed", MALFORMED, "the first message is not a hello message"
            )
        if hello.protocol != PROTOCOL:
            reason = (
                f"the agent uses protocol {hello.protocol}, this head {PROTOCOL}: install the "
                "head's Corral version on the node"
            )
            raise self._closing("old_protocol", OLD_PROTOCOL, reason)
        node = caller_of(socket).node
        if node is None or hello.node != node:
            reason = f"the token belongs to node {node}, not to node {hello.node[:60]}"
            raise self._closing("not_yours", NOT_YOURS, reason)
        if _ADDRESS.fullmatch(hello.address) is None:
            raise self._closing(
                "malformed",
                MALFORMED,
                f"{hello.address[:60]!r} is not a valid address of a node",
            )
        pace = self.taking.pace(node)
        await pace.wait_for_inventory(control.clock.monotonic())
        now = control.clock.monotonic()
        self._take_place(node, hello.boot, now)
        talk = Talk(
            socket=socket,
            node=node,
            boot=hello.boot,
            address=hello.address,
            inventory=self.taking.labelled(node, hello.inventory, control),
            heard_at=now,
            pace=pace,
        )
        self._talks[node] = talk
        log.info("agent_connected", node=node, boot=hello.boot)
        return talk

    def _take_place(self, node: NodeId, boot: BootId, now: float) -> None:
        """Let a new connection replace an older one of the same node. If both are of
        the same boot, the newer one wins. A connection of another boot is refused as a
        twin while the first is alive. Raises: Closing."""
        existing_talk = self._talks.get(node)
        if existing_talk is None:
            return
        if existing_talk.boot != boot and now - existing_talk.heard_at < GONE_SECONDS:
            log.error("twin_agents", node=node, alive=existing_talk.boot, refused=boot)
            reason = f"another agent already runs as node {node}: its token was copied"
            raise self._closing("twin", TWIN, reason)
        existing_talk.over = REPLACED
        existing_talk.wake.set()

    async def _receive_beats(self, talk: Talk, control: Control) -> None:
        while True:
            frame = await self._next(talk, control)
            if not isinstance(frame, Heartbeat):
                raise self._closing(
                    "malformed",
                    MALFORMED,
                    "only heartbeats are allowed after the hello message",
                )
            if talk.over:
                raise Closing(TWIN if talk.over == REPLACED else REVOKED, talk.over)
            if frame.inventory is not None:
                await self.taking.take_inventory(talk, frame.inventory, control)
            if frame.content is not None:
                talk.content = frame.content
            talk.has = frame.version
            talk.heard_at = control.clock.monotonic()
            seen_attempts = self.taking.seen(talk, frame, control)
            talk.seen = frozenset(attempt.key for attempt in seen_attempts)
            node_facts = NodeFacts(
                node=talk.node,
                boot=talk.boot,
                heard_at=control.serving_seconds(),
                inventory=talk.inventory,
                address=talk.address,
                seen=seen_attempts,
                signals=self.taking.signals(talk, frame, control),
                content=talk.content,
            )
            wall = control.clock.wall()
            if frame.sample is not None and talk.pace.samples.take(1, talk.heard_at):
                control.sensed.take(talk.node, frame.sample, wall)
            if not is_part(talk.node):
                control.hear(self.amend(node_facts))
            elif self.lender is not None:
                self.lender.hear_part(node_facts)
            signal_number = _acknowledged_signal(talk, frame, node_facts, control)
            await self._acknowledge(talk, frame.number, signal_number, wall)
            self._see_to(talk, control)

    async def _acknowledge(
        self, talk: Talk, number: int, taken: int, wall: float
    ) -> None:
        # both may change while the message is sent, and are then sent with the next one
        heads, users = self.heads, self.users
        answer = HeartbeatAck(
            number,
            heads if talk.heads != heads else (),
            taken,
            wall,
            users if talk.users != users else (),
        )
        await talk.socket.send_bytes(encode(answer))
        talk.heads, talk.users = heads, users

    async def announce_heads(self, heads: tuple[str, ...], wall: float) -> None:
        """Send the addresses of all heads to every connected agent at once, not with
        the next acknowledgement: this head is about to end. `wall`: the time now."""
        self.heads = heads
        sent = [
            self._acknowledge(talk, NO_HEARTBEAT, 0, wall)
            for talk in self._talks.values()
        ]
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(ANNOUNCE_SECONDS):
                await asyncio.gather(*sent, return_exceptions=True)

    async def _next(self, talk: Talk, control: Control) -> Hello | Heartbeat | LogChunk:
        """Return the node's next message, with fields that are out of bounds removed.
        The call waits if the node exceeds its rate limit."""
        frame = await frame_of(talk.socket)
        await self.taking.wait(talk, len(frame), control)
        parsed_frame = self._read(frame)
        for dropped in parsed_frame.dropped:
            self.taking.drop(talk.node, control, dropped)
        return parsed_frame.message

    def _see_to(self, talk: Talk, control: Control) -> None:
        """Send the desired state again if the agent is behind.

        An agent is behind if the newest version was not sent to it, or if it still does
        not report that version some time after it was sent.
        """
        if talk.node not in self._newest and (
            desired_state := self._first_word(talk.node, control)
        ):
            self._newest[talk.node] = desired_state
        if talk.node not in self._newest:
            return
        newest_version = self._newest[talk.node].version
        if talk.has == newest_version and not talk.is_partial:
            return
        late = talk.heard_at - talk.told_at >= AGAIN_SECONDS
        if talk.told != newest_version or late:
            talk.told, talk.told_at = None, talk.heard_at
            talk.wake.set()

    def _first_word(self, node: NodeId, control: Control) -> DesiredState | None:
        if not is_part(node):
            return control.wanted(node)
        return self.lender.part_word(node) if self.lender is not None else None

    async def _send_updates(self, talk: Talk) -> None:
        while True:
            await talk.wake.wait()
            talk.wake.clear()
            if talk.over:
                code = TWIN if talk.over == REPLACED else REVOKED
                await _close_socket(talk.socket, code, talk.over)
                return
            desired_state = self._newest.get(talk.node)
            if desired_state is not None and talk.told != desired_state.version:
                talk.told = desired_state.version
                frame, is_whole = word_frame(desired_state, talk.seen)
                talk.is_partial = not is_whole
                await talk.socket.send_bytes(frame)
            while talk.requests:
                await talk.socket.send_bytes(encode(talk.requests.pop(0)))

    async def logs(
        self,
        socket: WebSocket,
        control: Control,
        keeper: LogKeeper,
        has_room: Callable[[], bool] = lambda: True,
    ) -> None:
        """Receive the logs of one agent, until the connection is lost or the disk has
        no room for them."""
        try:
            await socket.accept()
        except OSError:
            return  # the agent left before its connection was accepted
        node = caller_of(socket).node
        assert node is not None
        owned: dict[tuple[JobId, AttemptNumber], range] = {}
        try:
            while True:
                chunk = self._read(await frame_of(socket)).message
                if not isinstance(chunk, LogChunk):
                    raise self._closing(
                        "malformed", MALFORMED, "only chunks of logs are allowed here"
                    )
                if chunk.data and not has_room():
                    raise Closing(LATER, "the head's disk is too full to store logs")
                key = (chunk.job, chunk.attempt)
                if key not in owned:
                    owned[key] = await ranks_of(control, node, *key)
                await socket.send_bytes(
                    encode(self._keep(chunk, owned[key], node, keeper))
                )
        except Closing as closing:
            await _close_socket(socket, closing.code, closing.why)
        except Trouble as trouble:
            await _close_socket(socket, LATER, trouble.message)
        except (WebSocketDisconnect, RuntimeError):
            pass
        except OSError as error:
            log.error("log_not_kept", node=node, error=str(error))
            await _close_socket(socket, LATER, "the head cannot write logs to its disk")

    def _keep(
        self, chunk: LogChunk, ranks: range, node: NodeId, keeper: LogKeeper
    ) -> LogAt:
        """Store the chunk, and return the offset from which the agent continues. A
        chunk of a rank outside `ranks` does not belong to the node. It is acknowledged
        but not stored, so that the agent stops sending it."""
        offset = chunk.offset + len(chunk.data)
        if chunk.rank in ranks and chunk.offset >= 0:
            offset = keeper.append(
                (chunk.job, chunk.attempt, chunk.rank), chunk.offset, chunk.data
            )
        elif chunk.data:
            self.refused["not_yours"] += 1
            log.warning("log_not_believed", node=node, job=chunk.job, rank=chunk.rank)
        return LogAt(
            job=chunk.job, attempt=chunk.attempt, rank=chunk.rank, offset=offset
        )

    def _read(self, frame: bytes) -> BoundedMessage:
        if len(frame) > FRAME_BYTES:
            raise self._closing(
                "malformed", MALFORMED, f"the message exceeds {FRAME_BYTES:,} bytes"
            )
        try:
            return read_frame(frame)
        except WRONG as error:
            raise self._closing("malformed", MALFORMED, str(error)) from None

    def _closing(self, kind: str, code: int, why: str) -> Closing:
        self.refused[kind] += 1
        log.warning("agent_refused", kind=kind, why=why)
        return Closing(code, why)


def _acknowledged_signal(
    talk: Talk, frame: Heartbeat, word: NodeFacts, control: Control
) -> int:
    """Return the number of the last signal that the agent need not report again. All
    signals up to it were recorded or rejected."""
    if is_part(talk.node) and frame.signals and not word.signals:
        return frame.signals[-1].number
    return recorded(talk, control)


async def frame_of(socket: WebSocket) -> bytes:
    """Return the bytes of the socket's next frame, whether it is binary or text.
    Raises: WebSocketDisconnect."""
    message = await socket.receive()
    if message["type"] == "websocket.disconnect":
        raise WebSocketDisconnect(message.get("code") or 1005, message.get("reason"))
    data: bytes | None = message.get("bytes")
    return (
        data
        if data is not None
        else str(message.get("text") or "").encode(errors="replace")
    )


async def _close_socket(socket: WebSocket, code: int, why: str) -> None:
    """Close the connection with this code. The reason is shortened, because a close
    frame's reason has at most 123 bytes."""
    with contextlib.suppress(RuntimeError, OSError, WebSocketDisconnect):
        await socket.close(
            code, why.encode(errors="replace")[:120].decode(errors="ignore")
        )
