"""Subscription to the events of one replica's KV cache, by ZeroMQ.

The engine publishes numbered batches, and answers at a second address with those that it
still has from a number on. A replay is requested at the start, after a gap, and after
each new connection.
"""

import asyncio
import logging
from contextlib import suppress
from typing import Any, Final, NamedTuple

import zmq
import zmq.asyncio
from zmq.utils.monitor import recv_monitor_message

from corral.gateway.replicas.kv_event_text import KvEventsInvalid, decode_batch
from corral.route.block_index import KvCacheView
from corral.route.kv_events import KvBatch

log = logging.getLogger(__name__)

RETRY_SECONDS: Final = 1.0
REPLAY_SECONDS: Final = 10.0
HEARTBEAT_MILLISECONDS: Final = 2_000
HEARTBEAT_TIMEOUT_MILLISECONDS: Final = 6_000
MOST_RECONNECT_MILLISECONDS: Final = 2_000
MOST_QUEUED_MESSAGES: Final = 10_000
MOST_MESSAGE_BYTES: Final = 16 * 1024 * 1024
BATCHES_WITHOUT_PAUSE: Final = 64
END_OF_REPLAY: Final = (-1).to_bytes(8, "big", signed=True)
_CHANGES: Final = zmq.EVENT_HANDSHAKE_SUCCEEDED | zmq.EVENT_DISCONNECTED


class KvEndpoints(NamedTuple):
    """Addresses at which an engine publishes and replays its events.

    Args:
        replay: None: it replays nothing.
    """

    events: str
    replay: str | None


class KvSubscription:
    """Subscription that keeps the view of a replica's cache up to date.

    Args:
        name: Name of the replica, for messages.
    """

    def __init__(self, name: str, endpoints: KvEndpoints, view: KvCacheView) -> None:
        self._name = name
        self._endpoints = endpoints
        self._view = view
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Subscribe, and follow the events from now on."""
        self._task = asyncio.get_running_loop().create_task(self._run())

    def stop(self) -> None:
        """End the subscription. The view is no longer live."""
        self._view.lose()
        if self._task is not None:
            self._task.cancel()

    async def _run(self) -> None:
        context = zmq.asyncio.Context.instance()
        while True:
            try:
                await self._follow(context)
            except KvEventsInvalid as error:
                self._view.lose()
                log.warning(
                    "the cache events of replica %s are not used: %s", self._name, error
                )
                return
            except zmq.ZMQError as error:
                log.warning("cache events of replica %s: %s", self._name, error)
            self._view.lose()
            await asyncio.sleep(RETRY_SECONDS)

    async def _follow(self, context: "zmq.asyncio.Context") -> None:
        socket = context.socket(zmq.SUB)
        changes = socket.get_monitor_socket(_CHANGES)
        try:
            socket.setsockopt(zmq.LINGER, 0)
            socket.setsockopt(zmq.RCVHWM, MOST_QUEUED_MESSAGES)
            socket.setsockopt(zmq.MAXMSGSIZE, MOST_MESSAGE_BYTES)
            socket.setsockopt(zmq.HEARTBEAT_IVL, HEARTBEAT_MILLISECONDS)
            socket.setsockopt(zmq.HEARTBEAT_TIMEOUT, HEARTBEAT_TIMEOUT_MILLISECONDS)
            socket.setsockopt(zmq.RECONNECT_IVL_MAX, MOST_RECONNECT_MILLISECONDS)
            socket.setsockopt(zmq.SUBSCRIBE, b"")
            socket.connect(self._endpoints.events)
            await self._receive(context, socket, changes)
        finally:
            socket.disable_monitor()
            changes.close()
            socket.close()

    async def _receive(
        self,
        context: "zmq.asyncio.Context",
        socket: "zmq.asyncio.Socket",
        changes: "zmq.asyncio.Socket",
    ) -> None:
        poller = zmq.asyncio.Poller()
        poller.register(socket, zmq.POLLIN)
        poller.register(changes, zmq.POLLIN)
        is_connected = False
        is_due = False
        while True:
            wait = 1000 * RETRY_SECONDS if is_due and is_connected else None
            ready = dict(await poller.poll(wait))
            if changes in ready:
                change = await recv_monitor_message(changes)
                is_connected = change["event"] == zmq.EVENT_HANDSHAKE_SUCCEEDED
                is_due = True
                if not is_connected:
                    self._view.lose()
            elif socket in ready:
                is_due = self._take_queued(socket) or is_due
                await asyncio.sleep(0)
            if is_due and is_connected:
                is_due = not await self._replay(context)

    def _take_queued(self, socket: "zmq.asyncio.Socket") -> bool:
        """Apply batches that have come; return whether a replay is needed.

        Raises: KvEventsInvalid.
        """
        plain: Any = zmq.Socket.shadow(socket)
        needs_replay = False
        for _ in range(BATCHES_WITHOUT_PAUSE):
            try:
                frames = plain.recv_multipart(zmq.NOBLOCK)
            except zmq.Again:
                break
            batch = _batch_of(frames)
            if not self._view.take(batch):
                continue
            if self._endpoints.replay is None:
                self._view.skip_to(batch)
            else:
                needs_replay = True
        return needs_replay

    async def _replay(self, context: "zmq.asyncio.Context") -> bool:
        """Request the batches that are missing; return whether they have come."""
        if self._endpoints.replay is None:
            return True  # the next batch is taken as it comes
        with suppress(TimeoutError):
            async with asyncio.timeout(REPLAY_SECONDS):
                while await self._request_replay(context, self._endpoints.replay):
                    pass
                return True
        log.warning("replica %s does not replay its cache events", self._name)
        return False

    async def _request_replay(
        self, context: "zmq.asyncio.Context", address: str
    ) -> bool:
        """Apply one replay; return whether another one is needed."""
        socket = context.socket(zmq.DEALER)
        try:
            socket.setsockopt(zmq.LINGER, 0)
            socket.setsockopt(zmq.MAXMSGSIZE, MOST_MESSAGE_BYTES)
            socket.connect(address)
            start = self._view.begin_replay()
            await socket.send_multipart([b"", start.to_bytes(8, "big")])
            count = 0
            while True:
                frames = await socket.recv_multipart()
                if len(frames) > 1 and frames[-2] == END_OF_REPLAY:
                    return self._view.end_replay()
                self._view.take_replayed(_batch_of(frames))
                count += 1
                if count % BATCHES_WITHOUT_PAUSE == 0:
                    await asyncio.sleep(0)
        finally:
            socket.close()


def _batch_of(frames: list[bytes]) -> KvBatch:
    """Return the batch of a message, whose last parts are its number and its events.

    Raises: KvEventsInvalid.
    """
    if len(frames) < 2 or len(frames[-2]) != 8:
        raise KvEventsInvalid("a message has a sequence number of 8 bytes")
    return decode_batch(int.from_bytes(frames[-2], "big"), frames[-1])
