"""The process that speaks with Ray is never left behind, also where no Ray answers."""

import asyncio
import re
import subprocess
import sys
from pathlib import Path

import pytest

from corral.engines.ray import driver as ray_driver
from corral.engines.ray.driver import RayDriver, RayTrouble
from corral.engines.ray.engine import RayEngine
from corral.engines.ray.settings import RaySettings
from tests.engines.lending.test_beside import links, until
from tests.patience import PATIENCE_SECONDS
from tests.ray_cluster import need_ray

NO_RAY = "127.0.0.1:9"


def test_a_helper_that_ray_keeps_waiting_ends_with_its_input(tmp_path: Path) -> None:
    need_ray()
    with (tmp_path / "log").open("wb") as log:
        helper = subprocess.Popen(
            [
                sys.executable,
                "-P",
                "-m",
                "corral.engines.ray.helper",
                NO_RAY,
                "corral-test",
            ],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
        )
    try:
        helper.communicate(timeout=PATIENCE_SECONDS)
        assert helper.returncode == 0
    finally:
        helper.kill()
        helper.wait()


def test_a_helper_that_has_not_answered_yet_is_ended_with_the_wait_for_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mute = tmp_path / "mute"
    mute.write_text("#!/bin/sh\nexec sleep 600\n")
    mute.chmod(0o700)
    monkeypatch.setattr(sys, "executable", str(mute))

    async def run() -> None:
        driver = RayDriver(
            address=NO_RAY, cluster="c", token_file="", log_file=tmp_path / "helper.log"
        )
        looks = asyncio.create_task(driver.look())
        async with asyncio.timeout(PATIENCE_SECONDS):
            while driver._process is None:
                await asyncio.sleep(0.01)
            helper = driver._process
            looks.cancel()
            await asyncio.gather(looks, return_exceptions=True)
        assert helper.returncode is not None

    asyncio.run(run())


def test_of_a_call_without_an_answer_is_told_what_it_was_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mute = tmp_path / "mute"
    mute.write_text("#!/bin/sh\necho '{}'\nexec sleep 600\n")
    mute.chmod(0o700)
    monkeypatch.setattr(sys, "executable", str(mute))
    monkeypatch.setattr(ray_driver, "CALL_SECONDS", 0.1)

    async def run() -> None:
        driver = RayDriver(
            address=NO_RAY, cluster="c", token_file="", log_file=tmp_path / "helper.log"
        )
        with pytest.raises(RayTrouble, match="Ray did not list its nodes") as trouble:
            await driver.look()
        assert trouble.value.is_silence
        await driver.close()

    asyncio.run(run())


def test_each_call_of_the_helper_has_words_for_people() -> None:
    source = Path(ray_driver.__file__).read_text()
    calls = re.findall(r'_call_helper\(\s*"(\w+)"', source)
    assert set(calls) == ray_driver._ACTIONS.keys()


def test_a_ray_that_does_not_answer_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "executable", "/bin/false")

    async def run() -> None:
        engine = RayEngine(
            cluster_dir=tmp_path, settings=RaySettings(address=NO_RAY), links=links()
        )
        await engine.start()
        await until(lambda: engine.trouble)
        await engine.down(kill=False)
        assert engine.trouble == (
            f"Ray does not answer: the Ray cluster at {NO_RAY} cannot be reached"
        )

    asyncio.run(run())
