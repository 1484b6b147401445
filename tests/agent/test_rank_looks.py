"""Looks at ranks from samples: which of them work, and what ranks report themselves."""

import os
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from corral.agent.shim.state import ShimState
from corral.agent.watching.process_counters import RankCounters, read_counters
from corral.agent.watching.rank_looks import (
    BUSY_FAULTS,
    BUSY_IO_BYTES,
    BUSY_SWITCHES,
    SLEEP_SECONDS,
    LookRound,
    Sleeps,
    look_round,
)
from corral.agent.watching.rank_reports import (
    MOST_COLLECTIVES,
    MOST_REPORT_FRAMES,
    RankReport,
    phase_named,
    report_of,
    report_record,
)
from corral.agent.watching.rank_samples import RankSample
from corral.domain.bounds import OutOfBounds
from corral.domain.hang import RankLook, RankState, StallPhase
from corral.domain.process_stacks import (
    ProcessRole,
    ProcessStacks,
    StackFrame,
    ThreadStack,
)
from tests.patience import PATIENCE_SECONDS

STILL = RankCounters(state="S", cpu_seconds=1.0)
SPINS = [replace(STILL, state="R"), replace(STILL, state="R", cpu_seconds=3.0)]
COLLECTIVE = "/torch/distributed/distributed_c10d.py"


def process(
    functions: tuple[str, ...],
    rank: int = 0,
    *,
    file: str = "train.py",
    pid: int = 10,
    role: ProcessRole = ProcessRole.RANK,
) -> ProcessStacks:
    frames = tuple(StackFrame(function=name, file=file, line=3) for name in functions)
    thread = ThreadStack(name="MainThread", frames=frames, is_main=True)
    return ProcessStacks(
        pid=pid,
        role=role,
        rank=rank,
        local_rank=rank,
        state="S",
        command="python",
        threads=(thread,),
    )


def looks_of(
    chains: Sequence[tuple[str, ...]],
    counters: list[RankCounters],
    *,
    sleeps: Sleeps | None = None,
    at: float = 0.0,
    **changes: Any,
) -> LookRound:
    """Look at one rank with these calls and counters."""
    samples = [
        RankSample(at=at, stacks=(process(chain, **changes),), counters={10: counter})
        for chain, counter in zip(chains, counters, strict=True)
    ]
    return look_round(samples, reports={}, sleeps=sleeps or Sleeps(), steps={0: 7})


def look_of(*arguments: Any, **changes: Any) -> RankLook:
    (look,) = looks_of(*arguments, **changes).looks[1]
    return look


SAME = [("load", "main")] * 2


def test_a_rank_whose_calls_change_works() -> None:
    assert not look_of(SAME, [STILL, STILL]).is_busy
    observed = looks_of([("load", "main"), ("read", "main")], [STILL, STILL])
    assert observed.has_moved
    assert observed.looks[1][0].is_busy
    assert observed.looks[1][0].step == 7


@pytest.mark.parametrize(
    ("changes", "works"),
    [
        ({"io_bytes": BUSY_IO_BYTES + 1}, True),
        ({"io_bytes": BUSY_IO_BYTES}, False),
        ({"page_faults": BUSY_FAULTS + 1}, True),
        ({"switches": BUSY_SWITCHES + 1}, True),
        ({}, False),
        ({"cpu_seconds": 1.05}, True),  # it had no time to move
    ],
)
def test_a_rank_that_spins_uses_the_cpu_and_nothing_else(
    changes: dict[str, Any], works: bool
) -> None:
    assert look_of(SAME, [SPINS[0], replace(SPINS[1], **changes)]).is_busy is works


def test_memory_and_waits_of_a_rank_that_sleeps_prove_nothing() -> None:
    later = replace(STILL, page_faults=10**6, switches=10**6)
    assert not look_of(SAME, [STILL, later]).is_busy


def test_a_sleep_that_ends_soon_is_a_pause() -> None:
    soon = replace(STILL, sleep_ends=100.0 + SLEEP_SECONDS - 1)
    observed = looks_of(SAME, [soon, soon], at=100.0)
    assert observed.looks[1][0].is_busy
    assert not observed.has_moved  # it has not more time because of it
    late = replace(STILL, sleep_ends=100.0 + SLEEP_SECONDS)
    assert not look_of(SAME, [late, late], at=100.0).is_busy


def test_sleep_after_sleep_is_a_hang() -> None:
    sleeps = Sleeps()
    ends = [replace(STILL, sleep_ends=end) for end in (101.0, 102.0)]
    assert not look_of(SAME, ends, sleeps=sleeps, at=100.0).is_busy
    sleeps.clear()
    once = [ends[0], ends[0]]
    assert look_of(SAME, once, sleeps=sleeps, at=100.0).is_busy
    again = [ends[1], ends[1]]
    assert not look_of(SAME, again, sleeps=sleeps, at=101.5).is_busy


def test_a_rank_in_a_debugger_is_no_hang() -> None:
    traced = replace(STILL, state="t")
    look = look_of(SAME, [traced, traced])
    assert (look.state, look.is_busy) == (RankState.STOPPED, True)
    stopped = replace(STILL, state="T")
    assert not look_of(SAME, [stopped, stopped]).is_busy
    assert look_of([("cmdloop",)] * 2, [STILL, STILL], file="/lib/pdb.py").is_busy


def test_threads_that_spin_while_a_rank_waits_for_others_are_no_work() -> None:
    chains = [("all_reduce",), ("wrapper", "all_reduce")]
    spins = [SPINS[0], replace(SPINS[1], switches=10**4)]
    look = look_of(chains, spins, file=COLLECTIVE)
    assert look.is_in_collective
    assert not look.is_busy


def test_a_rank_works_while_a_process_that_loads_its_data_does() -> None:
    def sample(function: str) -> RankSample:
        worker = process((function,), pid=11, role=ProcessRole.WORKER)
        file = "/torch/utils/data/dataloader.py"
        main = process(("_try_get_data",), file=file)
        return RankSample(
            at=0.0, stacks=(main, worker), counters={10: STILL, 11: STILL}
        )

    def round_of(*functions: str) -> LookRound:
        samples = [sample(function) for function in functions]
        return look_round(samples, reports={}, sleeps=Sleeps(), steps={})

    assert round_of("decode", "resize").looks[1][0].is_busy
    still = round_of("decode", "decode")
    assert not still.looks[1][0].is_busy
    assert still.phase is StallPhase.DATA
    assert still.looks[1][0].frame == "train.py:3 in decode"


def test_ranks_that_ended_are_absent() -> None:
    sample = RankSample(at=0.0, stacks=(process(("main",)),), counters={10: STILL})
    observed = look_round(
        [sample, sample], reports={}, sleeps=Sleeps(), steps={}, ended_ranks=[0, 1]
    )
    states = {look.rank: look.state for look in observed.looks[1]}
    assert states == {0: RankState.SLEEPING, 1: RankState.ABSENT}


def test_what_ranks_report_is_part_of_the_look() -> None:
    sample = RankSample(at=0.0, stacks=(process(("main",)),), counters={10: STILL})
    report = RankReport(
        rank=0, step=9, collectives=((5, "nccl:all_reduce"),), is_pending=True
    )
    observed = look_round(
        [sample, sample], reports={0: report}, sleeps=Sleeps(), steps={}
    )
    (look,) = observed.looks[1]
    assert (look.collective, look.operation, look.step) == (5, "nccl:all_reduce", 9)
    assert look.is_in_collective


def test_counters_of_a_process_are_read() -> None:
    program = "import time; time.sleep(1000)"
    with subprocess.Popen([sys.executable, "-c", program]) as child:
        deadline = time.monotonic() + PATIENCE_SECONDS
        counters = read_counters(child.pid)
        while counters is None or counters.sleep_ends is None or counters.state != "S":
            assert time.monotonic() < deadline, counters
            counters = read_counters(child.pid)
        child.kill()
    assert 900 < counters.sleep_ends - time.monotonic() <= 1000
    assert counters.rank_state is RankState.SLEEPING
    assert counters.io_bytes > 0
    assert read_counters(child.pid) is None
    mine = read_counters(os.getpid())
    assert mine is not None
    assert mine.rank_state is RankState.RUNNING


# --- messages


def message_of(**changes: Any) -> dict[str, Any]:
    return {
        "type": "stalled",
        "rank": 3,
        "step": 7,
        "collectives": [[4, "gloo:barrier"], [5, "gloo:all_reduce"]],
        "is_pending": None,
        "frames": [["load", "train.py", 18]],
        **changes,
    }


def test_a_report_passes_through_the_shim() -> None:
    report = report_of(report_record(message_of()))
    assert report == RankReport(
        rank=3,
        step=7,
        collectives=((4, "gloo:barrier"), (5, "gloo:all_reduce")),
        frames=(StackFrame(function="load", file="train.py", line=18),),
    )


def test_a_report_is_bounded() -> None:
    collectives = [[number, "x" * 10_000] for number in range(100)]
    frames = [["f" * 10_000, "a" * 10_000, 1]] * 1000
    report = report_of(message_of(collectives=collectives, frames=frames))
    assert len(report.collectives) == MOST_COLLECTIVES
    assert report.collectives[-1][0] == 99
    assert len(report.frames) == MOST_REPORT_FRAMES
    assert len(report.frames[0].file) <= 256


@pytest.mark.parametrize(
    "changes",
    [
        {"rank": -1},
        {"rank": "0"},
        {"collectives": [[1, 2]]},
        {"collectives": 5},
        {"frames": [["a", "b"]]},
        {"frames": [[None, "b", 1]]},
    ],
)
def test_a_report_that_is_none_is_refused(changes: dict[str, Any]) -> None:
    with pytest.raises((ValueError, TypeError, KeyError)):
        report_record(message_of(**changes))


def test_the_shim_keeps_the_phases_of_its_ranks() -> None:
    state = ShimState()
    for rank in (4, 5):
        state.take_phase({"rank": rank, "phase": "evaluate"}, range(4, 8))
    assert state.message["declared"] == ["evaluate"]
    state.take_phase({"rank": 4, "phase": "save"}, range(4, 8))
    assert state.message["declared"] == ["evaluate", "save"]
    state.take_phase({"rank": 5, "phase": ""}, range(4, 8))
    assert state.message["declared"] == ["save"]
    for rank, phase in ((3, "save"), (4, "x" * 65), (4, 7)):
        with pytest.raises(OutOfBounds):
            state.take_phase({"rank": rank, "phase": phase}, range(4, 8))


def test_a_name_of_its_own_is_a_phase_without_steps() -> None:
    names = ("", "save", "data", "evaluate", "warm up")
    assert [phase_named(name) for name in names] == [
        StallPhase.COMPUTE,
        StallPhase.SAVE,
        StallPhase.DATA,
        StallPhase.EVALUATE,
        StallPhase.EVALUATE,
    ]
