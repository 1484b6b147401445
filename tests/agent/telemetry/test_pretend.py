"""Pretend GPUs follow what runs on them, the same way each time."""

from dataclasses import replace
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from corral.agent.telemetry.pretend import OWN_MEMORY_BYTES, Pretend, sample_of, utilisation
from corral.agent.telemetry.sources import PretendGpus
from corral.agent.telemetry.words import Held
from corral.domain.facts import AttemptKey
from corral.domain.ids import AttemptNumber, JobId
from corral.domain.resources import Gpu

GPU = Gpu(index=0, uuid="pretend-n1-0", type="h100", memory_bytes=80 * 1024**3, pretend=True)
KEY: AttemptKey = (JobId("j1"), AttemptNumber(1))
HELD = Held(job=KEY[0], attempt=KEY[1], gpus=(0,), since=1000.0)
moments = st.floats(min_value=1e9, max_value=2e9)


def test_one_that_nobody_holds_idles() -> None:
    idle = sample_of(GPU, [], {}, 5000.0)
    assert idle.utilisation == 0.0
    assert idle.power_watts == 70.0
    assert not idle.processes


@given(at=moments)
def test_one_with_a_rank_works_and_says_the_same_at_the_same_moment(at: float) -> None:
    held = replace_since(at - 600)
    busy = sample_of(GPU, [held], {KEY: (7,)}, at)
    assert busy == sample_of(GPU, [held], {KEY: (7,)}, at)
    assert busy.utilisation is not None
    assert busy.utilisation >= 0.6
    assert busy.power_watts is not None
    assert 70.0 < busy.power_watts <= 700.0
    assert busy.temperature_celsius is not None
    assert busy.temperature_celsius > 50.0
    assert [(one.pid, one.job, one.attempt) for one in busy.processes] == [(7, *KEY)]


def test_its_curve_drifts() -> None:
    curve = [utilisation(GPU.uuid, HELD, float(at)) for at in range(0, 900, 10)]
    assert max(curve) - min(curve) > 0.03
    assert max(abs(one - next) for one, next in zip(curve, curve[1:], strict=False)) < 0.1


@given(at=moments, use=st.floats(0, 1), memory=st.floats(0, 1))
def test_a_job_says_what_its_gpus_shall_show(at: float, use: float, memory: float) -> None:
    told = Held(job=KEY[0], attempt=KEY[1], gpus=(0,), since=at - 60, use=use, memory=memory)
    shown = sample_of(GPU, [told], {}, at)
    assert shown.utilisation is not None
    assert abs(shown.utilisation - use) <= 0.08 + 1e-4
    assert use not in (0.0, 1.0) or shown.utilisation == use
    room = GPU.memory_bytes - OWN_MEMORY_BYTES
    assert shown.memory_used_bytes == OWN_MEMORY_BYTES + int(room * memory)


def test_what_it_used_only_adds_up() -> None:
    pretend = Pretend((GPU,))
    seen = [pretend.read([HELD], {}, at, {})[0].energy_joules for at in (1000.0, 1010.0, 1020.0)]
    assert seen[0] == 0.0
    assert seen[1] is not None
    assert seen[2] is not None
    assert 2000.0 < seen[1] < seen[2] < 14000.0


def test_a_fault_is_what_it_says_instead() -> None:
    faults = {"0": {"lost": True, "ecc_volatile_uncorrected": 3}}
    (shown,) = Pretend((GPU,)).read([], {}, 1.0, faults)
    assert (shown.lost, shown.ecc_volatile_uncorrected) == (True, 3)
    assert Pretend((replace(GPU, index=1),)).read([], {}, 1.0, faults)[0].lost is False


def replace_since(since: float) -> Held:
    return Held(job=KEY[0], attempt=KEY[1], gpus=(0,), since=since)


def test_a_fault_that_is_none_is_passed_over(tmp_path: Path) -> None:
    (tmp_path / "pretend.json").write_text('{"0": {"lost": "perhaps"}}')
    source = PretendGpus(Pretend((GPU,)), tmp_path / "pretend.json")
    source.begin([], {})
    ((shown,), silent) = source.end(0.0)
    assert (shown.lost, silent) == (False, False)
