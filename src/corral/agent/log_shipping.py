"""Shipping of the ranks' logs to the head as they grow, until they are complete. It
resumes by offset, and its chunks are bounded."""

import asyncio
import contextlib
import os
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from websockets.asyncio.client import ClientConnection

from corral.agent.connection import first_of
from corral.agent.inotify import Inotify
from corral.domain.ids import AttemptNumber, JobId
from corral.domain.observed_state import AttemptKey, Phase, Seen
from corral.wire.agent_messages import LogAt, LogChunk, encode, from_head

LOGS: Final = "/v1/agents/logs"
CHUNK_BYTES: Final = 256 * 1024
WINDOW_BYTES: Final = 1024 * 1024  # of one log that the head has not confirmed yet
LOOK_SECONDS: Final = 1.0  # in case the kernel did not tell
POLL_SECONDS: Final = 0.02  # where it cannot
_NAME: Final = re.compile(r"rank-(\d+)\.log", re.ASCII)
_OPEN: Final = frozenset({Phase.STARTING, Phase.UP, Phase.STOPPING})

Read = Callable[[Path, int, int], tuple[int, bytes]]
"""(log, offset, most bytes) -> (offset of the bytes, bytes); the offset is higher after a gap."""


@dataclass(slots=True, kw_only=True)
class ShippedLog:
    """The log of one rank while it is shipped to the head. `kept` is how many bytes the
    head has; None until the head reports it."""

    key: AttemptKey
    rank: int
    file: Path
    sent: int = 0
    kept: int | None = None


@dataclass(slots=True, kw_only=True)
class Followed:
    """The logs of one attempt that are shipped. Once `ended` is set they grow no more;
    shipping is done when the head has all of them."""

    folder: Path
    ended: bool = False
    watched: bool = False
    looked: bool = False  # since it ended
    logs: dict[int, ShippedLog] = field(default_factory=dict)


@dataclass(slots=True, kw_only=True)
class LogShipper:
    """Ships the logs of the attempts on the node. `drained` is called when the logs of
    an attempt are complete on the head."""

    attempts_dir: Path
    read: Read
    drained: Callable[[AttemptKey], None]
    _followed: dict[AttemptKey, Followed] = field(default_factory=dict)
    # in the order of their turns
    _due: dict[AttemptKey, None] = field(default_factory=dict)
    _changed: asyncio.Event = field(default_factory=asyncio.Event)
    _inotify: Inotify | None = None

    def start(self) -> None:
        """Start to watch the logs; this needs a running event loop. Without inotify the
        logs are polled every 20 ms."""
        with contextlib.suppress(OSError):
            self._inotify = Inotify(self._on_folder_change)

    def observe(self, seen: tuple[Seen, ...]) -> None:
        """Follow the logs of these attempts, and stop following attempts that are gone."""
        present = {attempt.key: attempt.phase not in _OPEN for attempt in seen}
        for key in self._followed.keys() - present.keys():
            self._unfollow_attempt(key)
        for key, has_ended in present.items():
            followed = self._followed.get(key)
            if followed is None:
                followed = Followed(
                    folder=self.attempts_dir / f"{key[0]}.{key[1]}" / "logs"
                )
                self._followed[key] = followed
                self._turn(key)
            if has_ended and not followed.ended:
                self._turn(key)
            followed.ended = has_ended

    def is_drained(self, key: AttemptKey) -> bool:
        """Return whether the attempt has ended and the head has all of its logs."""
        followed = self._followed.get(key)
        if followed is None:
            return False
        return (
            followed.ended
            and followed.looked
            and all(map(self._at_end, followed.logs.values()))
        )

    async def talk(self, connection: ClientConnection) -> None:
        """Ship logs until the connection is lost.

        Raises: OSError, ValueError, WebSocketException from the connection.
        """
        for key, followed in self._followed.items():
            for log in followed.logs.values():
                log.kept = None
                await self._ask(connection, log)
            self._turn(key)
        await first_of(
            self._send_due_logs(connection), self._receive_offsets(connection)
        )

    def close(self) -> None:
        if self._inotify is not None:
            self._inotify.close()
            self._inotify = None

    async def _receive_offsets(self, connection: ClientConnection) -> None:
        async for frame in connection:
            answer = from_head(frame if isinstance(frame, bytes) else frame.encode())
            if not isinstance(answer, LogAt):
                raise ValueError(
                    f"unexpected message among logs: {type(answer).__name__}"
                )
            followed = self._followed.get((answer.job, answer.attempt))
            log = followed.logs.get(answer.rank) if followed else None
            if log is None:
                continue
            if log.kept is None:
                log.sent = answer.offset
            log.kept = answer.offset
            self._turn(log.key)

    async def _send_due_logs(self, connection: ClientConnection) -> None:
        while True:
            self._changed.clear()
            while self._due:
                turns, self._due = self._due, {}
                for key in turns:
                    await self._ship_attempt_logs(connection, key)
            try:
                async with asyncio.timeout(self._patience_seconds()):
                    await self._changed.wait()
            except TimeoutError:
                self._due.update(dict.fromkeys(self._growing_attempts()))

    def _growing_attempts(self) -> list[AttemptKey]:
        return [key for key, followed in self._followed.items() if not followed.ended]

    def _patience_seconds(self) -> float | None:
        growing = [self._followed[key] for key in self._growing_attempts()]
        if not all(followed.watched for followed in growing):
            return POLL_SECONDS
        return LOOK_SECONDS if growing else None

    def _on_folder_change(self, folder: Path | None) -> None:
        if folder is None:
            self._due.update(dict.fromkeys(self._followed))
            self._changed.set()
            return
        job, _, attempt = folder.parent.name.rpartition(".")
        self._turn((JobId(job), AttemptNumber(int(attempt))))

    def _turn(self, key: AttemptKey) -> None:
        self._due[key] = None
        self._changed.set()

    async def _ship_attempt_logs(
        self, connection: ClientConnection, key: AttemptKey
    ) -> None:
        """Send at most one chunk of each log of the attempt, so that no other log has
        to wait for long."""
        followed = self._followed.get(key)
        if followed is None:
            return
        has_ended = followed.ended
        for log in self._discover_logs(key, followed):
            await self._ask(connection, log)
        followed.looked = has_ended
        for log in list(followed.logs.values()):
            if await self._send(connection, log):
                self._turn(key)
        if self.is_drained(key):
            self.drained(key)

    async def _send(self, connection: ClientConnection, log: ShippedLog) -> bool:
        if log.kept is None or log.sent - log.kept >= WINDOW_BYTES:
            return False
        offset, data = self.read(log.file, log.sent, CHUNK_BYTES)
        if not data:
            return False
        log.sent = offset + len(data)
        job, attempt = log.key
        chunk = LogChunk(
            job=job, attempt=attempt, rank=log.rank, offset=offset, data=data
        )
        await connection.send(encode(chunk))
        return True

    async def _ask(self, connection: ClientConnection, log: ShippedLog) -> None:
        job, attempt = log.key
        question = LogChunk(job=job, attempt=attempt, rank=log.rank, offset=0, data=b"")
        await connection.send(encode(question))

    def _discover_logs(self, key: AttemptKey, followed: Followed) -> list[ShippedLog]:
        """Return the logs of the attempt's ranks that have appeared since the last
        call."""
        if not followed.watched and self._inotify is not None:
            followed.watched = self._inotify.watch(followed.folder)
        new_logs = []
        with contextlib.suppress(FileNotFoundError):
            for name in os.listdir(followed.folder):
                rank = _rank_of(name)
                if rank is not None and rank not in followed.logs:
                    followed.logs[rank] = ShippedLog(
                        key=key, rank=rank, file=followed.folder / name
                    )
                    new_logs.append(followed.logs[rank])
        return new_logs

    def _unfollow_attempt(self, key: AttemptKey) -> None:
        followed = self._followed.pop(key)
        if self._inotify is not None:
            self._inotify.forget(followed.folder)

    def _at_end(self, log: ShippedLog) -> bool:
        if log.kept is None or log.kept < log.sent:
            return False
        return not self.read(log.file, log.sent, 1)[1]


def _rank_of(name: str) -> int | None:
    match = _NAME.fullmatch(name)
    return int(match.group(1)) if match else None
