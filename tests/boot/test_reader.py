"""Last lines of logs are read in a process beside the head, within a time."""

import asyncio
import os
import signal
from pathlib import Path

import msgspec
import pytest

from corral.boot import log_reader_process
from corral.boot.helper_process import HelperProcess
from corral.boot.log_reader_process import LogReaderAnswer, ReaderProcess
from corral.domain.attempt import Exit
from corral.domain.diagnosis import RankEnd, RankEnds
from corral.domain.errors import Trouble
from corral.domain.ids import NodeId
from corral.health.gang_failure import failure_of
from tests.patience import PATIENCE_SECONDS

SLOW = "*** [" * 800  # of what an expression begins to match and never ends


def ends(
    ranks: int, tail: str = "RuntimeError: CUDA out of memory. \ud83d"
) -> RankEnds:
    exit = Exit(code=1, at=1.0)
    printed = tail.encode(errors="replace").decode()
    return tuple(
        RankEnd(
            rank=rank, node=NodeId(f"n{rank // 8}"), exit=exit, tail=f"{rank} {printed}"
        )
        for rank in range(ranks)
    )


def test_it_reads_what_the_loop_would_have_read_in_a_process_that_ends_with_the_head() -> (
    None
):
    async def ask() -> None:
        process = ReaderProcess()
        for read in (ends(3), ends(1, ""), ends(64, SLOW), ()):
            assert await process.failure(read) == failure_of(read)
        pid = process.pid or 0
        assert pid not in (0, os.getpid())
        await process.close()
        async with asyncio.timeout(PATIENCE_SECONDS):
            while Path(f"/proc/{pid}").exists():
                await asyncio.sleep(0.01)

    asyncio.run(ask())


def test_the_loop_goes_on_while_an_evil_log_is_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Read in the loop, these tails would stop it for about a second."""
    monkeypatch.setattr(log_reader_process, "READ_SECONDS", PATIENCE_SECONDS)

    async def ask() -> None:
        process, rounds = ReaderProcess(), 0
        await process.failure(ends(1))
        reading = asyncio.create_task(process.failure(ends(512, SLOW)))
        while not reading.done():
            await asyncio.sleep(0.005)
            rounds += 1
        assert rounds >= 10
        assert (await reading) is not None
        await process.close()

    asyncio.run(ask())


def test_a_reading_that_takes_too_long_is_given_up_and_the_next_one_is_made(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def ask() -> None:
        process = ReaderProcess()
        await process.failure(ends(1))
        os.kill(process.pid or 0, signal.SIGSTOP)
        monkeypatch.setattr(log_reader_process, "READ_SECONDS", 0.05)
        with pytest.raises(Trouble, match="could not be read: .* within 0.05 s"):
            await process.failure(ends(1))
        monkeypatch.setattr(log_reader_process, "READ_SECONDS", PATIENCE_SECONDS)
        assert await process.failure(ends(2)) == failure_of(ends(2))
        await process.close()

    asyncio.run(ask())


def test_a_bug_of_the_reader_is_told_with_its_error(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def answer(*_: object) -> bytes:
        return msgspec.msgpack.encode(LogReaderAnswer(fault="KeyError('x')"))

    monkeypatch.setattr(HelperProcess, "ask", answer)
    with pytest.raises(Trouble) as trouble:
        asyncio.run(ReaderProcess().failure(ends(2)))
    assert trouble.value.message == (
        "the last log lines of the attempt (ranks: 2) could not be read: a bug of the "
        "log reader: KeyError('x')"
    )
