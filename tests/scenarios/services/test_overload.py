"""Three times what the replicas can do, with real processes: refused early, with the time
to come again, and shared equally."""

import asyncio
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

import pytest

from tests.scenarios.services.fleet import ENGINES, Fleet, chat, fleet, play, poisson

SECONDS = 6.0
TOKENS = {"mock": 10, "llama": 60}
COMMON = {
    "mock": ("--token-seconds", "0.01", "--slots", "4"),
    "llama": ("--slots", "4"),
}
AT_ONCE = 12
REFUSAL_SECONDS = 0.05


@dataclass
class Outcome:
    """Answers of one run."""

    statuses: Counter[int] = field(default_factory=Counter)
    in_time: int = 0
    refusal_seconds: list[float] = field(default_factory=list)
    has_retry_after: bool = True


async def measured_peak(running: Fleet, tokens: int) -> float:
    """Return the requests a second with AT_ONCE requests always under way."""
    end = time.monotonic() + SECONDS / 2
    count = 0

    async def client(number: int) -> None:
        nonlocal count
        while time.monotonic() < end:
            assert (await running.post(chat(number, tokens))).status == 200
            count += 1

    begin = time.monotonic()
    await asyncio.gather(*(client(number) for number in range(AT_ONCE)))
    return count / (time.monotonic() - begin)


async def overloaded(running: Fleet, rate: float, tokens: int) -> Outcome:
    """Send requests at this rate, whatever becomes of them."""
    outcome = Outcome()
    begin = time.monotonic()

    async def one(number: int) -> None:
        at = time.monotonic()
        answer = await running.post(chat(number, tokens))
        seconds = time.monotonic() - at
        outcome.statuses[answer.status] += 1
        if answer.status == 200:
            outcome.in_time += time.monotonic() - begin <= SECONDS
        else:
            outcome.refusal_seconds.append(seconds)
            outcome.has_retry_after &= float(answer.headers["retry-after"]) > 0

    tasks = []
    for number, moment in enumerate(poisson(rate, SECONDS)):
        await asyncio.sleep(max(0.0, begin + moment - time.monotonic()))
        tasks.append(asyncio.ensure_future(one(number)))
    await asyncio.gather(*tasks)
    return outcome


@pytest.mark.soak
@pytest.mark.parametrize("engine", ENGINES)
def test_three_times_the_peak_is_refused_early_and_costs_no_goodput(
    tmp_path: Path, engine: str
) -> None:
    async def scenario() -> None:
        tokens = TOKENS[engine]
        service: dict[str, Any] = {"queue_requests": 16, "deadline_seconds": 5.0}
        async with fleet(
            tmp_path, engine, 2, common=COMMON[engine], **service
        ) as running:
            for number in range(40):
                await running.post(chat(number, tokens))
            peak = await measured_peak(running, tokens)
            outcome = await overloaded(running, 3 * peak, tokens)
            while outcome.statuses[200] == sum(outcome.statuses.values()):
                peak = max(1.2 * peak, outcome.in_time / SECONDS)  # it was no peak
                outcome = await overloaded(running, 3 * peak, tokens)
            assert set(outcome.statuses) <= {200, 429, 503}
            assert outcome.has_retry_after
            assert median(outcome.refusal_seconds) <= REFUSAL_SECONDS
            goodput = outcome.in_time / SECONDS / peak
            # llama.cpp, the gateway and the client share the cores of the machine
            assert goodput >= (0.9 if engine == "mock" else 0.6), f"{goodput:.0%}"

    play(scenario())
