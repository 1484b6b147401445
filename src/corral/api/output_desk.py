"""Output files of attempts, and stacks of their processes. The head requests them from
the nodes' agents, and forwards the bytes as they arrive."""

import asyncio
from collections import Counter
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Final

from starlette.websockets import WebSocket, WebSocketDisconnect

from corral.api.agent_channel import Channels, frame_of
from corral.api.agent_sessions import DialledSessions
from corral.api.errors import TooMany
from corral.control import Control
from corral.domain.errors import Conflict, Refusal, Trouble
from corral.domain.ids import NodeId, UserName
from corral.domain.node import Liveness
from corral.domain.observed_state import AttemptKey
from corral.domain.outputs import OutputListing
from corral.domain.process_stacks import ProcessStacks
from corral.wire.agent_messages import FilesNow, StacksNow
from corral.wire.output_frames import DATA, END, decode_end, decode_listing
from corral.wire.stack_frames import decode_stacks

LIST_SECONDS: Final = 5.0
STALLED_SECONDS: Final = 60.0  # without a frame
STACKS_SECONDS: Final = 60.0
MOST_ANSWER_BYTES: Final = 4 * 1024**2
MOST_OF_USER: Final = 4  # transfers at once
MOST_OF_ALL: Final = 32
RequestOf = Callable[..., FilesNow | StacksNow]  # of a session


class OutputAbsent(Refusal):
    """The node has no such file, or no longer keeps the outputs of the attempt."""

    code = "output_absent"


class TransferCutShort(Trouble):
    """The node's agent closed the connection before all bytes were sent."""

    code = "cut_short"


@dataclass(slots=True)
class Transfer:
    """A tar stream of output files in transfer. `ended` is called once, on closing."""

    pieces: AsyncGenerator[bytes, None]
    ended: Callable[[], None]
    first: bytes = b""

    async def body(self) -> AsyncIterator[bytes]:
        yield self.first
        async for piece in self.pieces:
            yield piece

    async def close(self) -> None:
        """Close the stream of the agent, whether all bytes were read or not."""
        try:
            await self.pieces.aclose()
        finally:
            self.ended()


class OutputDesk:
    """Requests listings and files from agents. The number of simultaneous transfers is
    limited."""

    def __init__(
        self, channels: Channels, sessions: DialledSessions, control: Control
    ) -> None:
        self._channels = channels
        self._sessions = sessions
        self._control = control
        self._transfers: Counter[UserName] = Counter()

    async def listing(
        self, node: NodeId, key: AttemptKey, seconds: float = LIST_SECONDS
    ) -> OutputListing:
        """Return the files that the attempt wrote on the node.

        Raises: Conflict, OutputAbsent, TransferCutShort; TimeoutError after `seconds`.
        """
        request = partial(FilesNow, job=key[0], attempt=key[1])
        async with asyncio.timeout(seconds):
            listing = await self._whole(node, key, request, "list of files")
        try:
            return decode_listing(listing)
        except ValueError as wrong:
            raise TransferCutShort(
                f"the list of files of node {node} cannot be read: {wrong}"
            ) from None

    async def stacks(self, node: NodeId, key: AttemptKey) -> list[ProcessStacks]:
        """Return the stacks of the attempt's Python processes on the node.

        Raises: Conflict, OutputAbsent, TransferCutShort; TimeoutError after
        STACKS_SECONDS.
        """
        request = partial(StacksNow, job=key[0], attempt=key[1])
        async with asyncio.timeout(STACKS_SECONDS):
            stacks = await self._whole(node, key, request, "stacks")
        try:
            return decode_stacks(stacks)
        except ValueError as wrong:
            raise TransferCutShort(
                f"the stacks of node {node} cannot be read: {wrong}"
            ) from None

    async def _whole(
        self, node: NodeId, key: AttemptKey, request_of: RequestOf, what: str
    ) -> bytes:
        """Return all that the agent sends. Raises: as `_pieces`; TransferCutShort if it
        is more than MOST_ANSWER_BYTES."""
        buffer = bytearray()
        async for piece in self._pieces(node, key, request_of, what):
            buffer += piece
            if len(buffer) > MOST_ANSWER_BYTES:
                raise TransferCutShort(
                    f"node {node} has sent more than {MOST_ANSWER_BYTES:,} bytes of "
                    f"{what}"
                )
        return bytes(buffer)

    async def begin(
        self, node: NodeId, key: AttemptKey, path: str, by: UserName
    ) -> "Transfer":
        """Begin to transfer the file or folder `path`, and return the transfer once its
        first piece has arrived. The caller must close the transfer.

        Raises: Conflict, OutputAbsent, TransferCutShort; TooMany if the user or all
        users together run as many transfers as are allowed.
        """
        if (
            self._transfers[by] >= MOST_OF_USER
            or self._transfers.total() >= MOST_OF_ALL
        ):
            raise TooMany(
                f"too many file transfers run now: {self._transfers[by]} of {by} (limit "
                f"{MOST_OF_USER}), {self._transfers.total()} of all users (limit {MOST_OF_ALL})",
                hint="try again when a transfer has ended",
            )
        self._transfers[by] += 1
        request = partial(FilesNow, job=key[0], attempt=key[1], path=path)
        transfer = Transfer(
            self._pieces(node, key, request), lambda: self._transfers.subtract([by])
        )
        try:
            transfer.first = await anext(transfer.pieces, b"")
        except BaseException:
            await transfer.close()
            raise
        return transfer

    async def _pieces(
        self, node: NodeId, key: AttemptKey, request_of: RequestOf, what: str = "files"
    ) -> AsyncGenerator[bytes, None]:
        """Yield what the agent sends. `what`: its name in the text of an error."""
        known_node = self._control.world.nodes.get(node)
        if known_node is not None and known_node.liveness is not Liveness.ALIVE:
            raise Conflict(
                f"node {node} is {known_node.liveness} and does not answer",
                hint=f"run: corral node show {node}",
            )
        id = self._control.clock.fresh_id()
        with self._sessions.opened(id, node, key) as session:
            if not self._channels.attach(node, request_of(session=id)):
                raise Conflict(
                    f"node {node} is not connected now",
                    hint=f"run: corral node show {node}",
                )
            socket = await session.dialled(what)
            try:
                async for piece in _read_agent_stream(socket, node, what):
                    yield piece
            finally:
                with suppress(RuntimeError, OSError, WebSocketDisconnect):
                    await socket.close()


async def _read_agent_stream(
    socket: WebSocket, node: NodeId, what: str
) -> AsyncIterator[bytes]:
    """Yield the pieces of the stream until the agent reports that all were sent.

    Raises: OutputAbsent, Conflict, TransferCutShort.
    """
    while True:
        try:
            async with asyncio.timeout(STALLED_SECONDS):
                frame = await frame_of(socket)
        except (TimeoutError, WebSocketDisconnect):
            raise TransferCutShort(
                f"node {node} stopped sending before the end of the {what}"
            ) from None
        if frame[:1] == DATA:
            yield frame[1:]
        elif frame[:1] == END:
            _check_end(frame, node)
            return
        else:
            raise TransferCutShort(f"node {node} has sent invalid data")


def _check_end(frame: bytes, node: NodeId) -> None:
    """Check the last frame of a stream.

    Raises: OutputAbsent if the file does not exist, Conflict if the agent refused the
    request, TransferCutShort otherwise if not all bytes were sent.
    """
    try:
        end_record = decode_end(frame)
    except ValueError:
        raise TransferCutShort(f"node {node} has sent invalid data") from None
    if end_record.outcome == "absent":
        raise OutputAbsent(
            f"node {node}: {end_record.why}",
            hint="to list the files, run: corral outputs JOB",
        )
    if end_record.outcome == "refused":
        raise Conflict(
            f"node {node}: {end_record.why}",
            hint="to list the files, run: corral outputs JOB",
        )
