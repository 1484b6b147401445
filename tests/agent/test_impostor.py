"""What takes the port of a head that has died is sent no token, however long the agent
tries."""

from pathlib import Path

import pytest

from tests import impostor as of
from tests.agent.bench import bench
from tests.agent.fakehead import TOKEN
from tests.impostor import Answer, impostor


@pytest.mark.parametrize(
    "answer", [of.closes, of.accepts, of.upgrades], ids=lambda one: one.__name__
)
async def test_an_agent_sends_its_token_to_its_own_head_alone(
    tmp_path: Path, answer: Answer
) -> None:
    async with bench(tmp_path) as here:
        await here.until(lambda: here.head.beats)
        beats = len(here.head.beats)
        await here.head.die()
        with impostor(here.head.host, here.head.port, answer) as taker:
            await here.until(lambda: taker.taken.count(b"/v1/proof") > 3)
            assert TOKEN.encode() not in taker.taken
        await here.head.start()
        await here.until(lambda: len(here.head.beats) > beats)
