"""The agent's side of the sensor reader: it starts the reader at the first request, and
kills a reader that hangs."""

import asyncio
import contextlib
import logging
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import msgspec

from corral.agent.telemetry.messages import (
    Happening,
    Said,
    SampleRequest,
    SensorReading,
)

ANSWER_SECONDS: Final = 5.0  # more than the reader takes when everything is silent
START_SECONDS: Final = 30.0  # what its first answer may take beyond that
LINE_BYTES: Final = 4 * 1024 * 1024
# before one that hangs or fails is started once more
LONGEST_PAUSE_SECONDS: Final = 300.0
log = logging.getLogger(__name__)


@dataclass(slots=True, kw_only=True)
class SensorHelper:
    """Client of the sensor reader, with one reader process at a time. `happened` is
    called for each fault report that the reader sends without a request."""

    node_dir: Path
    happened: Callable[[Happening], None] = lambda happening: None
    command: tuple[str, ...] = (sys.executable, "-m", "corral.agent.telemetry.reader")
    answer_seconds: float = ANSWER_SECONDS
    _process: asyncio.subprocess.Process | None = None
    _listening: asyncio.Task[None] | None = None
    _answers: asyncio.Queue[SensorReading] = field(default_factory=asyncio.Queue)
    _answered: bool = False
    _failures: int = 0
    not_before: float = 0.0

    @property
    def pid(self) -> int | None:
        return None if self._process is None else self._process.pid

    async def ask(self, ask: SampleRequest) -> SensorReading | None:
        """Return a reading of the sensors now; None if the sensor process does not
        answer in time. That process is then killed. A later call starts a new one,
        after a pause that doubles with each failure."""
        now = asyncio.get_running_loop().time
        if self._answered and self._listening is not None and self._listening.done():
            await self.close()  # it has ended by itself, and is to be restarted
        try:
            if self._process is None:
                if now() < self.not_before:
                    return None
                await self._start()
            process = self._process
            assert process is not None
            assert process.stdin is not None
            process.stdin.write(msgspec.json.encode(ask) + b"\n")
            patience = self.answer_seconds + (0.0 if self._answered else START_SECONDS)
            async with asyncio.timeout(patience):
                await process.stdin.drain()
                reading = await self._wait_for_reading()
        except (OSError, TimeoutError) as trouble:
            log.warning(
                "the sensor process does not answer: %s",
                trouble or type(trouble).__name__,
            )
            await self.close()
            self._failures += 1
            pause = min(2.0**self._failures, LONGEST_PAUSE_SECONDS)
            self.not_before = now() + pause
            return None
        self._answered, self._failures = True, 0
        return reading

    async def close(self) -> None:
        """Kill the reader, if there is one. A reader that hangs in the kernel is left
        behind."""
        process, self._process = self._process, None
        listening, self._listening = self._listening, None
        if listening is not None:
            listening.cancel()
            await asyncio.gather(listening, return_exceptions=True)
        if process is None:
            return
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(1.0):
                await process.wait()

    async def _start(self) -> None:
        self._answered, self._answers = False, asyncio.Queue()
        self._process = await asyncio.create_subprocess_exec(
            *self.command,
            str(self.node_dir),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            limit=LINE_BYTES,
        )
        assert self._process.stdout is not None
        self._listening = asyncio.create_task(
            self._read_process_output(self._process.stdout)
        )

    async def _wait_for_reading(self) -> SensorReading:
        """Wait for the reader's next answer. Raises: OSError when the reader has ended."""
        assert self._listening is not None
        answer = asyncio.create_task(self._answers.get())
        try:
            await asyncio.wait(
                (answer, self._listening), return_when=asyncio.FIRST_COMPLETED
            )
            if not answer.done():
                raise OSError("the sensor process has ended")
            return answer.result()
        finally:
            answer.cancel()

    async def _read_process_output(self, stdout: asyncio.StreamReader) -> None:
        # what it says is not understood: it is done with
        with contextlib.suppress(ValueError):
            while line := await stdout.readline():
                match msgspec.json.decode(line, type=Said):
                    case SensorReading() as reading:
                        self._answers.put_nowait(reading)
                    case Happening() as happening:
                        self.happened(happening)
