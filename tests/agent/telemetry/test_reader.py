"""The reader as a process: it is killed when it hangs, and the agent's beats go on."""

import asyncio
import os
import signal
from pathlib import Path

from corral.agent.processes import lives
from corral.agent.telemetry.helper import SensorHelper
from corral.agent.telemetry.messages import HeldAttempt, SampleRequest
from corral.agent.telemetry.sampler import Senses
from corral.domain.ids import AttemptNumber, BootId, JobId
from corral.domain.node_signal import SignalKind
from corral.domain.telemetry import SENSORS
from tests.agent.bench import FakeRanks, agent_in, running, settings_in
from tests.agent.fakehead import FakeHead


async def test_the_reader_answers_each_question_and_goes_with_its_agent(
    tmp_path: Path,
) -> None:
    settings_in(tmp_path)
    helper = SensorHelper(node_dir=tmp_path)
    held = HeldAttempt(job=JobId("j1"), attempt=AttemptNumber(1), gpus=(1,), use=0.5)
    try:
        busy = await helper.ask(SampleRequest(held=(held,)))
        pid = helper.pid
        idle = await helper.ask(SampleRequest())
        assert busy is not None
        assert idle is not None
        first, second = busy.sample, idle.sample
        assert [bool(gpu.utilisation) for gpu in first.gpus] == [False, True]
        assert [bool(gpu.utilisation) for gpu in second.gpus] == [False, False]
        assert second.at > first.at
        assert second.memory_total_bytes
        assert [one.path for one in second.disks] == [str(tmp_path)]
        assert helper.pid == pid
    finally:
        await helper.close()
    assert pid is not None
    assert not lives(pid)


async def test_a_reader_that_hangs_is_killed_and_later_there_is_another(
    tmp_path: Path,
) -> None:
    settings_in(tmp_path)
    helper = SensorHelper(node_dir=tmp_path)
    try:
        assert await helper.ask(SampleRequest()) is not None
        halted = helper.pid
        assert halted is not None
        os.kill(halted, signal.SIGSTOP)
        helper.answer_seconds = 0.05
        assert await helper.ask(SampleRequest()) is None
        assert not lives(halted)
        assert await helper.ask(SampleRequest()) is None, (
            "there is a pause before the next is started"
        )
        helper.not_before = 0.0
        assert await helper.ask(SampleRequest()) is not None
    finally:
        await helper.close()


async def test_sensors_that_hang_are_a_signal_and_beats_go_on(tmp_path: Path) -> None:
    head, settings = FakeHead(file=tmp_path / "head.json"), settings_in(tmp_path)
    senses = Senses(node_dir=tmp_path, settings=settings, boot=BootId("b1"))
    agent = agent_in(tmp_path, FakeRanks(), [], senses=senses)
    await head.start()
    try:
        async with running(agent):
            await head.until(lambda: any(beat.sample for beat in head.beats))
            senses.helper.answer_seconds = 0.05
            assert senses.helper.pid is not None
            os.kill(senses.helper.pid, signal.SIGSTOP)
            await asyncio.wait_for(senses.look(), 5)
            beats = len(head.beats)
            await head.until(lambda: any(beat.signals for beat in head.beats[beats:]))
            told = [one for one in head.beats if one.signals][-1].signals
            assert [(one.kind, one.device, one.gpu) for one in told] == [
                (SignalKind.SILENT, SENSORS, None)
            ]
            await head.until(lambda: len(head.beats) > beats + 1)
    finally:
        await head.die()


async def test_signals_are_repeated_until_they_are_recorded_and_numbers_rise_over_restarts(
    tmp_path: Path,
) -> None:
    head, settings = FakeHead(file=tmp_path / "head.json"), settings_in(tmp_path)
    head.recorded = 41  # a node of this name was here before
    await head.start()
    try:
        for number in (42, 43):
            senses = Senses(node_dir=tmp_path, settings=settings, boot=BootId("b1"))
            async with running(agent_in(tmp_path, FakeRanks(), [], senses=senses)):
                await head.until(lambda: senses.sample is not None)  # noqa: B023
                fault = (
                    '{"0": {"lost": true}}' if number == 42 else '{"1": {"lost": true}}'
                )
                (tmp_path / "pretend.json").write_text(fault)
                await senses.look()
                await head.until(lambda: told(head) == number)  # noqa: B023
                again = len(head.beats)
                await head.until(lambda: len(head.beats) > again + 1)  # noqa: B023
                assert told(head) == number, "it is said until it is recorded"
                head.recorded = number
                await head.until(lambda: told(head) == 0)
    finally:
        await head.die()


def told(head: FakeHead) -> int:
    """The number of the last signal in the newest beat."""
    return (
        head.beats[-1].signals[-1].number
        if head.beats and head.beats[-1].signals
        else 0
    )
