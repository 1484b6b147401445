"""What is said of a Ray that does not answer yet."""

import asyncio
from pathlib import Path
from typing import cast

import pytest

from corral.engines.ray import engine as ray_engine
from corral.engines.ray.driver import RayDriver
from corral.engines.ray.engine import RayEngine
from corral.engines.ray.settings import RaySettings
from tests.engines.lending.test_beside import links, until


class Silent:
    async def look(self) -> None:
        await asyncio.Event().wait()


def test_a_ray_that_does_not_answer_is_named_before_it_is_given_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ray_engine, "LATE_SECONDS", 0.01)
    settings = RaySettings(address="127.0.0.1:6399")
    engine = RayEngine(cluster_dir=tmp_path, settings=settings, links=links())
    engine._driver = cast(RayDriver, Silent())

    async def run() -> None:
        looking = asyncio.create_task(engine._look_again_and_again())
        await until(lambda: engine.trouble)
        looking.cancel()

    asyncio.run(run())
    assert engine.trouble == (
        "the Ray cluster at 127.0.0.1:6399 has not answered for 0.01 s"
    )
