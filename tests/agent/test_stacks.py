"""Stacks of an attempt's processes, read from outside, and merged over ranks."""

import os
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest import mock

from corral.agent.watching.stack_reader import read_stacks
from corral.domain.process_stacks import (
    MOST_FRAMES,
    MOST_LISTED,
    MOST_PROCESSES,
    ProcessRole,
    ProcessStacks,
    StackFrame,
    ThreadStack,
)
from corral.health.merged_stacks import merge_stacks
from corral.wire.stack_frames import ANSWER_BYTES, decode_stacks, encode_stacks
from tests.agent.nodes import Node, launch_of, node

PROGRAM = """
import os, signal, sys, time
def sleeps():
    time.sleep(1000)
def spins():
    while True:
        pass
def is_stopped():
    os.kill(os.getpid(), signal.SIGSTOP)
def loads():
    import multiprocessing
    worker = multiprocessing.get_context("fork").Process(target=sleeps)
    worker.start()
    print("worker", worker.pid, flush=True)
    worker.join()
def has_no_number():
    os.execve(sys.executable, [sys.executable, "-c", "import time; time.sleep(1000)"],
        {**os.environ, "RANK": "9" * 5000})
def is_deep(calls=5000):
    if calls:
        return is_deep(calls - 1)
    print("deep", flush=True)
    sleeps()
sys.setrecursionlimit(20000)
print("began", flush=True)
{"0": sleeps, "1": spins, "2": is_stopped, "3": loads, "4": has_no_number, "5": is_deep}[
    os.environ["RANK"]]()
"""


async def started(here: Node, run: str, lines: int, **more: Any) -> Path:
    """Start an attempt and return its folder, once it has printed so many lines."""
    (here.dir / "program.py").write_text(PROGRAM)
    key = await here.launch(launch_of(run, **more))
    folder = here.work(key).parent

    def printed() -> bool:
        logs = folder.glob("logs/rank-*.log")
        return sum(log.read_text().count("\n") for log in logs) >= lines

    await here.until(printed, "the output of the ranks")
    return folder


def where(process: ProcessStacks) -> tuple[str, ...]:
    thread = process.main_thread
    assert thread is not None, process.trouble
    return tuple(frame.function for frame in thread.frames)


async def test_a_process_is_read_whatever_it_does(node_dir: Path) -> None:
    async with node(node_dir) as here:
        run = "cp ../../../program.py . && exec python3 program.py"
        folder = await started(here, run, 5, ranks=4, world_size=4, per="gpu")
        processes = await read_stacks(folder)
        while any(p.role is ProcessRole.RANK and len(where(p)) < 2 for p in processes):
            processes = await read_stacks(folder)  # one of them has not got there yet
    ranks = {p.rank: p for p in processes if p.role is ProcessRole.RANK}
    assert [where(ranks[rank])[-2:] for rank in range(4)] == [
        ("sleeps", "<module>"),
        ("spins", "<module>"),
        ("is_stopped", "<module>"),
        ("loads", "<module>"),
    ]
    assert (ranks[1].state, ranks[2].state) == ("R", "T")
    (frame,) = [f for f in ranks[0].threads[0].frames if f.function == "sleeps"]
    assert (frame.file, frame.line) == ("program.py", 4)
    (worker,) = [p for p in processes if p.role is ProcessRole.WORKER]
    assert (worker.rank, where(worker)[0]) == (3, "sleeps")


async def test_a_rank_that_is_not_a_small_number_is_none(node_dir: Path) -> None:
    async with node(node_dir) as here:
        run = "RANK=4 exec python3 ../../../program.py"
        folder = await started(here, run, 1)
        while (processes := await read_stacks(folder))[0].rank == 4:
            pass  # it has not got there yet
    assert [process.rank for process in processes] == [None]


async def test_what_cannot_be_read_in_time_is_left_out(node_dir: Path) -> None:
    async with node(node_dir) as here:
        folder = await started(here, "exec python3 ../../../program.py", 1)
        with mock.patch("corral.agent.watching.stack_reader.READ_ALL_SECONDS", 0.0):
            (process,) = await read_stacks(folder)
    assert (process.threads, process.trouble) == (
        (),
        "its stacks could not be read in time",
    )


async def test_processes_beyond_those_that_are_read_are_listed_with_the_reason(
    node_dir: Path,
) -> None:
    async with node(node_dir) as here:
        run = "exec python3 ../../../program.py"
        folder = await started(here, run, 5, ranks=4, world_size=4, per="gpu")
        with mock.patch("corral.agent.watching.stack_reader.MOST_PROCESSES", 1):
            processes = await read_stacks(folder)
    ranks = [process for process in processes if process.role is ProcessRole.RANK]
    assert [bool(process.trouble) for process in ranks] == [False, True, True, True]
    assert processes[-1].trouble == "of each node, 64 processes are read"
    many = [process_of(rank, 1, ProcessRole.RANK) for rank in range(MOST_LISTED + 1)]
    assert len(decode_stacks(encode_stacks(many))) == MOST_LISTED


async def test_a_stack_that_is_too_deep_has_its_reason(node_dir: Path) -> None:
    async with node(node_dir) as here:
        run = "export RANK=5; exec python3 ../../../program.py"
        folder = await started(here, run, 2)
        (process,) = await read_stacks(folder)
    assert "inside more than 4,096 calls" in process.trouble


async def test_without_py_spy_the_reason_is_given(node_dir: Path) -> None:
    async with node(node_dir) as here:
        run = "exec python3 ../../../program.py"
        folder = await started(here, run, 1)
        with (
            mock.patch("sys.executable", "/nowhere/python"),
            mock.patch.dict(os.environ, {"PATH": "/nowhere"}),
        ):
            (process,) = await read_stacks(folder)
    assert process.threads == ()
    assert "pip install 'corral[watch]'" in process.trouble


async def test_processes_of_others_are_not_read(node_dir: Path) -> None:
    assert await read_stacks(node_dir / "attempts" / "j9.1") == []


def process_of(rank: int, line: int, role: ProcessRole) -> ProcessStacks:
    frames = (StackFrame(function="main", file="train.py", line=line),)
    thread = ThreadStack(name="MainThread", frames=frames, is_main=True)
    other = ThreadStack(name="pin_memory", frames=())
    return ProcessStacks(
        pid=100 + rank,
        role=role,
        rank=rank,
        local_rank=rank,
        state="S",
        command="python train.py",
        threads=(other, thread),
    )


def test_the_rank_that_differs_is_at_the_end() -> None:
    lines = {3: 10, 0: 12, 2: 12, 1: 12}
    processes = [process_of(r, line, ProcessRole.RANK) for r, line in lines.items()]
    processes.append(process_of(9, 50, ProcessRole.LAUNCHER))
    assert [
        (stack.ranks, stack.frames[0].line) for stack in merge_stacks(processes)
    ] == [((0, 1, 2), 12), ((3,), 10)]


def test_stacks_that_are_too_large_lose_other_threads_and_outer_calls() -> None:
    frame = StackFrame(function="\x1b" * 256, file="\x1b" * 512, line=1)
    threads = tuple(
        ThreadStack(name=str(number), frames=(frame,) * MOST_FRAMES, is_main=not number)
        for number in range(3)
    )
    process = process_of(0, 1, ProcessRole.RANK)
    small, large = (
        [replace(process, threads=threads)] * count for count in (1, MOST_PROCESSES)
    )
    assert decode_stacks(encode_stacks(small)) == small
    answer = encode_stacks(large)
    assert len(answer) <= ANSWER_BYTES
    read = decode_stacks(answer)
    assert len(read) == MOST_PROCESSES
    for other in read:
        (thread,) = other.threads
        assert thread.is_main
        assert 1 <= len(thread.frames) < MOST_FRAMES
