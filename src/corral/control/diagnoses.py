"""Reading of the last log lines of failed ranks, outside the event loop.

One attempt is read at a time, and users take turns, so that the logs of one user do not
delay those of others for long.
"""

import asyncio
from collections import OrderedDict, deque
from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

from corral.domain.diagnosis import Diagnosis, RankEnds
from corral.domain.errors import Trouble
from corral.domain.ids import JobId, UserName
from corral.domain.observed_state import AttemptKey
from corral.domain.world import World
from corral.ports.clock import Clock
from corral.ports.log import HeadLogger
from corral.ports.log_reader import LogReader

MOST_READINGS: Final = 32  # of one attempt, whose ranks end one after the other
PATIENCE_SECONDS: Final = 15.0  # in line; after that the attempt goes on without
log = HeadLogger("corral.control")


class _Asked(NamedTuple):
    key: AttemptKey
    ends: RankEnds
    at: float


class Diagnoses:
    """Attempts whose logs must be read to find out why they failed, and the results.
    `known` maps attempts that have not ended to their results; it is part of the facts.

    Without a log reader, as in tests, `known` is None, and the control loop reads the
    logs itself.
    """

    def __init__(
        self, reader: LogReader | None, clock: Clock, *, done: Callable[[JobId], None]
    ) -> None:
        """Args:
        done: called with the job of each new diagnosis.
        """
        self._reader = reader
        self._clock = clock
        self._done = done
        self.known: dict[AttemptKey, Diagnosis] | None = None if reader is None else {}
        self._lines: OrderedDict[UserName, deque[_Asked]] = OrderedDict()
        self._waiting: set[AttemptKey] = set()
        self._readings: dict[AttemptKey, int] = {}
        self._asked = asyncio.Event()

    def ask(self, unread: Mapping[AttemptKey, RankEnds], world: World) -> None:
        """Queue the attempts whose logs are not read yet. An attempt that is already in
        the queue is read with the rank ends known when it was queued. If more ranks
        have ended since, it must be queued again after that."""
        for key, rank_ends in unread.items():
            job = world.jobs.get(key[0])
            if key in self._waiting or job is None:
                continue
            self._waiting.add(key)
            line = self._lines.setdefault(job.owner, deque())
            line.append(_Asked(key, rank_ends, self._clock.monotonic()))
            self._asked.set()

    async def run(self) -> None:
        """Read what is asked for, for ever."""
        while True:
            await self._asked.wait()
            self._asked.clear()
            while self._lines and self._reader is not None:
                owner, line = self._lines.popitem(last=False)
                question = line.popleft()
                if line:
                    self._lines[owner] = line  # behind the other users
                await self._read(question, self._reader)

    async def _read(self, asked: _Asked, reader: LogReader) -> None:
        """Read the log of one attempt and store the diagnosis. If the log cannot be
        read in time, the diagnosis keeps the failure that was known before, or None."""
        assert self.known is not None
        key, last_diagnosis = asked.key, self.known.get(asked.key)
        failure = last_diagnosis.failure if last_diagnosis is not None else None
        self._readings[key] = self._readings.get(key, 0) + 1
        try:
            if self._clock.monotonic() - asked.at < PATIENCE_SECONDS:
                failure = await reader.failure(asked.ends)
        except Trouble as error:
            log.warning(
                "not_read",
                job=key[0],
                attempt=key[1],
                error=error.message,
                hint=f"read the log: corral logs {key[0]}",
            )
        is_last = self._readings[key] >= MOST_READINGS
        self.known[key] = Diagnosis(ends=asked.ends, failure=failure, is_last=is_last)
        self._waiting.discard(key)
        self._done(key[0])

    def forget(self, world: World) -> None:
        """Drop the diagnoses of attempts that have ended."""
        for key in list(self.known or ()):
            job = world.jobs.get(key[0])
            if job is None or job.attempt != key[1] or not job.state.is_on_nodes:
                assert self.known is not None
                del self.known[key]
                self._readings.pop(key, None)
