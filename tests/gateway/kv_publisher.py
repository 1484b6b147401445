"""Publisher of cache events as engines have it: PUB with numbered batches, and a ROUTER
that replays the newest of them."""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

import msgspec
import zmq
import zmq.asyncio

from corral.gateway.replicas.kv_subscription import END_OF_REPLAY
from tests.patience import own_loopback

HOST = own_loopback()  # no other process takes its ports meanwhile


def stored(
    hashes: Sequence[int], parent: int | None, tokens: Sequence[int], size: int
) -> dict[str, Any]:
    """Return an event as vLLM 0.32 writes it."""
    return {
        "type": "BlockStored",
        "block_hashes": list(hashes),
        "parent_block_hash": parent,
        "token_ids": list(tokens),
        "block_size": size,
        "lora_id": None,
        "medium": "GPU",
        "lora_name": None,
        "extra_keys": [None] * len(hashes),
        "group_idx": 0,
        "kv_cache_spec_kind": "full_attention",
    }


def removed(hashes: Sequence[int]) -> dict[str, Any]:
    return {
        "type": "BlockRemoved",
        "block_hashes": list(hashes),
        "medium": "GPU",
        "group_idx": 0,
    }


CLEARED = {"type": "AllBlocksCleared"}


@dataclass
class Publisher:
    """Publisher of one engine.

    Args:
        has_topic: Whether replayed messages begin with the topic, as those of vLLM.
    """

    has_topic: bool = True
    host: str = HOST
    buffer_batches: int = 1000
    port: int = 0
    replay_port: int = 0
    number: int = 0
    now: float = 1000.0
    replays: int = 0
    buffer: deque[tuple[int, bytes]] = field(default_factory=deque)
    _sockets: list[zmq.asyncio.Socket] = field(default_factory=list)
    _task: asyncio.Task[None] | None = None

    async def start(self) -> None:
        context = zmq.asyncio.Context.instance()
        self._sockets = [context.socket(zmq.PUB), context.socket(zmq.ROUTER)]
        self.port = await _bind(self._sockets[0], self.host, self.port)
        self.replay_port = await _bind(self._sockets[1], self.host, self.replay_port)
        self._task = asyncio.get_running_loop().create_task(self._serve_replays())

    def stop(self) -> None:
        assert self._task is not None
        self._task.cancel()
        for socket in self._sockets:
            socket.close(linger=0)

    async def restart(self) -> None:
        """End the engine, and start another one at the same ports."""
        self.stop()
        self.number = 0
        self.now += 5.0
        self.buffer.clear()
        await self.start()

    @property
    def entry(self) -> dict[str, int]:
        return {"port": self.port, "replay_port": self.replay_port}

    async def publish(self, *events: object, is_lost: bool = False) -> None:
        """Publish a batch. A lost one is only in the replay."""
        self.now += 0.01
        message = msgspec.msgpack.encode([self.now, list(events), 0])
        self.buffer.append((self.number, message))
        while len(self.buffer) > self.buffer_batches:
            self.buffer.popleft()
        if not is_lost:
            await self._sockets[0].send_multipart(
                [b"", self.number.to_bytes(8, "big"), message]
            )
        self.number += 1

    async def _serve_replays(self) -> None:
        socket = self._sockets[1]
        while True:
            client, _, start = await socket.recv_multipart()
            self.replays += 1
            topic = [b""] if self.has_topic else []
            for number, message in list(self.buffer):
                if number >= int.from_bytes(start, "big"):
                    number_bytes = number.to_bytes(8, "big")
                    await socket.send_multipart(
                        [client, b"", *topic, number_bytes, message]
                    )
            await socket.send_multipart([client, b"", *topic, END_OF_REPLAY, b""])


async def _bind(socket: zmq.asyncio.Socket, host: str, port: int) -> int:
    """Bind a free port, or one that a closed socket may still have for a moment."""
    if not port:
        return int(socket.bind_to_random_port(f"tcp://{host}"))
    async with asyncio.timeout(20):
        while True:
            with suppress(zmq.ZMQError):
                socket.bind(f"tcp://{host}:{port}")
                return port
            await asyncio.sleep(0.01)


@asynccontextmanager
async def publisher(**more: Any) -> AsyncIterator[Publisher]:
    """Run a publisher on free ports."""
    running = Publisher(**more)
    await running.start()
    try:
        yield running
    finally:
        running.stop()
