"""A process beside the head that plays the present forward: `python -m corral.boot.foreteller`.

The head's loop hands over what it knows and goes on. The process ends with the head: it reads what
is asked from a pipe of the head's, and leaves when that is closed.
"""

import asyncio
import os
import sys
from asyncio.subprocess import PIPE, Process, create_subprocess_exec
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import BinaryIO, Final

import msgspec
import structlog

from corral.boot.clock import SystemClock
from corral.domain.errors import Trouble
from corral.domain.forecast import Forecast, Question

LENGTH_BYTES: Final = 8
THINK_SECONDS: Final = 2.0  # then no further run of the present is begun
ANSWER_SECONDS: Final = 20.0  # then the process is taken for lost
MOST_IN_LINE: Final = 16
NICENESS: Final = 5
log = structlog.get_logger("corral.boot")


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """`fault`: a bug that was met on this question; the next one is another matter."""

    forecast: Forecast | None = None
    fault: str = ""


_QUESTIONS: Final = msgspec.msgpack.Decoder(Question)
_ANSWERS: Final = msgspec.msgpack.Decoder(Answer)


@dataclass(slots=True)
class ForetellerProcess:
    """Keeps ports.Foreteller; the process is started by the first question, one at a time."""

    _process: Process | None = None
    _turn: asyncio.Lock = field(default_factory=asyncio.Lock)
    _in_line: int = 0

    @property
    def pid(self) -> int | None:
        """None before the first question."""
        return self._process.pid if self._process is not None else None

    async def forecast(self, question: Question) -> Forecast | None:
        if self._in_line >= MOST_IN_LINE:
            raise Trouble("too many ask when jobs start", hint="ask again in a moment")
        self._in_line += 1
        try:
            async with self._turn, asyncio.timeout(ANSWER_SECONDS):
                return await self._ask(question)
        except (TimeoutError, OSError, EOFError, msgspec.MsgspecError) as error:
            log.warning("foreteller_lost", error=repr(error))
            raise Trouble("when it starts was not told in time", hint="ask again") from error
        finally:
            self._in_line -= 1

    async def _ask(self, question: Question) -> Forecast | None:
        process = await self._running()
        try:
            answer = await _exchange(process, question)
        except BaseException:  # its answer may still come, and would be taken for the next one's
            self._kill()
            raise
        if answer.fault:
            raise Trouble(f"a fault of Corral was met: {answer.fault}", hint="run: corral status")
        return answer.forecast

    async def _running(self) -> Process:
        if self._process is None or self._process.returncode is not None:
            words = [sys.executable, "-P", "-m", "corral.boot.foreteller"]
            self._process = await create_subprocess_exec(*words, stdin=PIPE, stdout=PIPE)
        return self._process

    def _kill(self) -> Process | None:
        process, self._process = self._process, None
        if process is not None and process.returncode is None:
            with suppress(ProcessLookupError):
                process.kill()
        return process

    async def close(self) -> None:
        """End the process, and see it gone."""
        process = self._kill()
        if process is not None:
            await process.communicate()


async def _exchange(process: Process, question: Question) -> Answer:
    """What is answered to it. Raises: EOFError, OSError when the process is gone.

    Of a thousand nodes the question has ten megabytes: there is one copy of it, and none while the
    answer is thought of.
    """
    pipe_in, pipe_out = process.stdin, process.stdout
    assert pipe_in is not None
    assert pipe_out is not None
    text = msgspec.msgpack.encode(question)
    pipe_in.write(len(text).to_bytes(LENGTH_BYTES))
    pipe_in.write(text)
    del text
    await pipe_in.drain()
    length = int.from_bytes(await pipe_out.readexactly(LENGTH_BYTES))
    return _ANSWERS.decode(await pipe_out.readexactly(length))


def main() -> None:
    """Answer what is asked, one after the other, until the pipe is closed."""
    sys.modules["numba"] = None  # type: ignore[assignment]  # nothing here waits for a compiler
    from corral.reconcile.foretell import foretell

    os.nice(NICENESS)
    clock = SystemClock()
    asked, answers = sys.stdin.buffer, sys.stdout.buffer
    while question := _read(asked):
        is_within = partial(_is_within, clock.monotonic(), clock)
        text = msgspec.msgpack.encode(_answer(foretell, question, is_within))
        try:
            answers.write(len(text).to_bytes(LENGTH_BYTES) + text)
            answers.flush()
        except BrokenPipeError:
            return


def _is_within(began: float, clock: SystemClock, part: float) -> bool:
    return clock.monotonic() - began < part * THINK_SECONDS


def _read(asked: BinaryIO) -> Question | None:
    """None when the head has gone."""
    length = int.from_bytes(asked.read(LENGTH_BYTES))
    text = asked.read(length) if length else b""
    return _QUESTIONS.decode(text) if text and len(text) == length else None


def _answer(
    foretell: Callable[[Question, Callable[[float], bool]], Forecast | None],
    question: Question,
    is_within: Callable[[float], bool],
) -> Answer:
    try:
        return Answer(forecast=foretell(question, is_within))
    except Exception as error:
        return Answer(fault=repr(error))


if __name__ == "__main__":
    main()
