"""A helper process of the head that answers questions over a pipe, one at a time.

The head's event loop sends a question and continues. The process starts with the first
question, and ends with the head: it reads from a pipe of the head, and exits when the
pipe is closed.
"""

import asyncio
import os
import sys
from asyncio.subprocess import PIPE, Process, create_subprocess_exec
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import BinaryIO, Final

LENGTH_BYTES: Final = 8
NICENESS: Final = 5


@dataclass(slots=True)
class HelperProcess:
    """The head's side of a helper process. `module` is the module that the process
    runs; it calls `answer_on`."""

    module: str
    _process: Process | None = None
    _turn: asyncio.Lock = field(default_factory=asyncio.Lock)

    @property
    def pid(self) -> int | None:
        """The id of the helper process; None before the first question."""
        return self._process.pid if self._process is not None else None

    async def ask(self, question: Callable[[], bytes], seconds: float) -> bytes:
        """Send a question and return the answer. Questions are answered one at a time,
        in turn.

        Args:
            question: Makes the text when it is sent, so that waiting questions hold no
                text.
            seconds: Time limit for the answer, without the wait for the turn.
        Raises: TimeoutError, and OSError or EOFError if the process has ended. The next
        question starts a new process.
        """
        async with self._turn:
            try:
                async with asyncio.timeout(seconds):
                    return await _exchange_message(await self._running(), question)
            except BaseException:
                # its answer may still come, and would be taken for another's
                self._kill_process()
                raise

    async def _running(self) -> Process:
        if self._process is None or self._process.returncode is not None:
            command = [sys.executable, "-P", "-m", self.module]
            self._process = await create_subprocess_exec(
                *command, stdin=PIPE, stdout=PIPE
            )
        return self._process

    def _kill_process(self) -> Process | None:
        process, self._process = self._process, None
        if process is not None and process.returncode is None:
            with suppress(ProcessLookupError):
                process.kill()
        return process

    async def close(self) -> None:
        """End the process, and wait until it has ended."""
        process = self._kill_process()
        if process is not None:
            await process.communicate()


async def _exchange_message(process: Process, question: Callable[[], bytes]) -> bytes:
    """Send a question and read the answer.

    A question may have ten megabytes, so only one copy of it exists, and none while the
    answer is awaited.

    Raises: EOFError, OSError if the process has ended.
    """
    pipe_in, pipe_out = process.stdin, process.stdout
    assert pipe_in is not None
    assert pipe_out is not None
    text = question()
    pipe_in.write(len(text).to_bytes(LENGTH_BYTES))
    pipe_in.write(text)
    del text
    await pipe_in.drain()
    length = int.from_bytes(await pipe_out.readexactly(LENGTH_BYTES))
    return await pipe_out.readexactly(length)


def answer_on(answer: Callable[[bytes], bytes]) -> None:
    """Run as the helper process: answer questions, one after the other, until the pipe
    is closed."""
    os.nice(NICENESS)
    requests, answers = sys.stdin.buffer, sys.stdout.buffer
    while question := _read_question(requests):
        text = answer(question)
        try:
            answers.write(len(text).to_bytes(LENGTH_BYTES) + text)
            answers.flush()
        except BrokenPipeError:
            return


def _read_question(asked: BinaryIO) -> bytes:
    """Return the next question; b"" if the head has ended."""
    length = int.from_bytes(asked.read(LENGTH_BYTES))
    text = asked.read(length) if length else b""
    return text if len(text) == length else b""
