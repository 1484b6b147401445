"""Pretend GPUs follow the processes that run on them."""

import os
import signal
import subprocess
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from corral.agent.telemetry.messages import HeldAttempt
from corral.agent.telemetry.pretend import (
    OWN_MEMORY_BYTES,
    Pretend,
    ProcessWork,
    sample_of,
)
from corral.agent.telemetry.sources import PretendGpus, work_below
from corral.domain.ids import AttemptNumber, JobId
from corral.domain.observed_state import AttemptKey
from corral.domain.resources import Gpu
from corral.domain.telemetry import GpuSample
from tests.patience import PATIENCE_SECONDS

GPU = Gpu(
    index=0, uuid="pretend-n1-0", type="h100", memory_bytes=80 * 1024**3, pretend=True
)
KEY: AttemptKey = (JobId("j1"), AttemptNumber(1))


def test_one_that_nobody_holds_idles() -> None:
    idle = sample_of(GPU, [], {}, 5000.0)
    assert idle.utilisation == 0.0
    assert idle.power_watts == 70.0
    assert not idle.processes


def read(
    pretend: Pretend, at: float, cpu_seconds: float, *gpus: int, **more: Any
) -> GpuSample:
    """The first GPU, while the attempt's processes have used this much CPU time since
    1000.0."""
    held = HeldAttempt(
        job=KEY[0], attempt=KEY[1], gpus=gpus or (0,), since=1000.0, **more
    )
    work = {KEY: ProcessWork(cpu_seconds=cpu_seconds, memory_bytes=20 * 1024**3)}
    return pretend.read([held], {KEY: (7,)}, at, {}, work)[0]


def test_one_whose_ranks_sleep_is_idle_and_one_whose_ranks_compute_is_busy() -> None:
    pretend = Pretend((GPU,))
    assert read(pretend, 1010.0, 10.0).utilisation == 1.0
    assert read(pretend, 1020.0, 10.0).utilisation == 0.0
    half = read(pretend, 1030.0, 15.0)
    assert half.utilisation == 0.5
    assert half.power_watts is not None
    assert 70.0 < half.power_watts < 665.0
    assert [(one.pid, one.job, one.attempt) for one in half.processes] == [(7, *KEY)]
    assert read(pretend, 1040.0, 400.0).utilisation == 1.0, (
        "of many threads no more than all"
    )
    assert read(pretend, 1050.0, 0.0).utilisation == 0.0, "its processes are others now"


def test_the_first_reading_is_the_mean_since_the_attempt_began() -> None:
    assert read(Pretend((GPU,)), 1100.0, 25.0).utilisation == 0.25


def test_an_attempt_on_two_gpus_shares_its_work_out() -> None:
    pair = Pretend((GPU, replace(GPU, index=1)))
    both = read(pair, 1010.0, 10.0, 0, 1)
    assert both.utilisation == 0.5
    assert both.memory_used_bytes is not None
    assert 10.0 < both.memory_used_bytes / 1024**3 < 11.0


@given(use=st.floats(0, 1), memory=st.floats(0, 1))
def test_a_job_sets_what_its_gpus_show(use: float, memory: float) -> None:
    shown = read(Pretend((GPU,)), 1010.0, 3.0, use=use, memory=memory)
    assert shown.utilisation == round(use, 4)
    room = GPU.memory_bytes - OWN_MEMORY_BYTES
    assert shown.memory_used_bytes == OWN_MEMORY_BYTES + int(room * memory)


def test_the_work_of_a_process_is_that_of_all_below_it() -> None:
    busy = subprocess.Popen(
        ["sh", "-c", "(while :; do :; done) & echo up; wait"], stdout=subprocess.PIPE,
        start_new_session=True,
    )  # fmt: skip
    try:
        assert busy.stdout is not None
        assert busy.stdout.readline() == b"up\n"
        deadline = time.monotonic() + PATIENCE_SECONDS
        while work_below(busy.pid).cpu_seconds < 0.1:
            assert time.monotonic() < deadline
        assert work_below(busy.pid).memory_bytes > 0
    finally:
        os.killpg(busy.pid, signal.SIGKILL)
        busy.communicate()


def test_what_it_used_only_adds_up() -> None:
    pretend = Pretend((GPU,))
    moments = (1000.0, 1010.0, 1020.0)
    seen = [read(pretend, at, at - 1000.0, use=0.9).energy_joules for at in moments]
    assert seen[0] == 0.0
    assert seen[1] is not None
    assert seen[2] is not None
    assert 2000.0 < seen[1] < seen[2] < 14000.0


def test_a_fault_is_what_it_says_instead() -> None:
    faults = {"0": {"lost": True, "ecc_volatile_uncorrected": 3}}
    (shown,) = Pretend((GPU,)).read([], {}, 1.0, faults)
    assert (shown.lost, shown.ecc_volatile_uncorrected) == (True, 3)
    assert Pretend((replace(GPU, index=1),)).read([], {}, 1.0, faults)[0].lost is False


def test_a_fault_that_is_none_is_passed_over(tmp_path: Path) -> None:
    (tmp_path / "pretend.json").write_text('{"0": {"lost": "perhaps"}}')
    source = PretendGpus(Pretend((GPU,)), tmp_path / "pretend.json")
    source.begin([], {})
    ((shown,), silent) = source.end(0.0)
    assert (shown.lost, silent) == (False, False)
