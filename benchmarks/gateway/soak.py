"""Ten minutes of churn: memory and descriptors of the gateway must stay flat.

Four replicas are processes of their own. One of them is killed each few seconds and started
again; the revision in the routes changes each 15 s, with a canary in between; clients send
requests and streams, leave in the middle of streams, or read a byte a second.

Run: python -m benchmarks.gateway.soak [--seconds 600] [--engine mock] [--no-keep]
"""

import argparse
import asyncio
import os
import platform
import random
import signal
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from statistics import mean
from typing import Any, Final

from tests.gateway.worlds import request_bytes
from tests.scenarios.services.fleet import (
    Fleet,
    Replica,
    chat,
    fleet,
    resident_mb,
    stream_of,
)

RESULTS: Final = Path(__file__).parent.parent / "results"
REPLICAS: Final = 4
SAMPLE_SECONDS: Final = 5.0
KILL_SECONDS: Final = 6.0
ROLL_SECONDS: Final = 15.0
PAUSE_SECONDS: Final = 0.05
MOST_GROWTH: Final = 0.05
MOST_MORE_DESCRIPTORS: Final = 1.1
REST_SECONDS: Final = 8.0  # longer than connections to replicas stay open


@dataclass
class Soak:
    """Counts and samples of one run."""

    running: Fleet
    until: float
    answers: Counter[str] = field(default_factory=Counter)
    memory_mb: list[float] = field(default_factory=list)
    descriptors: list[int] = field(default_factory=list)
    at_rest: list[int] = field(default_factory=list)  # before and after the load
    kills: int = 0
    revisions: int = 1

    def is_over(self) -> bool:
        return time.monotonic() >= self.until

    async def send_requests(self, number: int) -> None:
        while not self.is_over():
            try:
                answer = await self.running.post(chat(number % 50))
                self.answers[f"request {answer.status}"] += 1
            except (OSError, asyncio.IncompleteReadError, TimeoutError) as error:
                self.answers[f"request {type(error).__name__}"] += 1
            number += 1
            await asyncio.sleep(PAUSE_SECONDS)

    async def send_streams(self, number: int) -> None:
        while not self.is_over():
            try:
                answer = await self.running.post(stream_of(number % 50, 100))
            except (OSError, asyncio.IncompleteReadError, TimeoutError) as error:
                self.answers[f"stream {type(error).__name__}"] += 1
                continue
            end = "whole" if answer.events[-1:] == ["[DONE]"] else "not whole"
            if answer.status != 200:
                end = str(answer.status)
            self.answers[f"stream {end}"] += 1
            number += 1
            await asyncio.sleep(PAUSE_SECONDS)

    async def leave_streams(self, number: int) -> None:
        chance = random.Random(number)
        while not self.is_over():
            client = await self.running.connect()
            client.writer.write(request_bytes(stream_of(number, 200)))
            await asyncio.sleep(chance.uniform(0.0, 0.4))
            client.writer.transport.abort()
            self.answers["left by its client"] += 1

    async def read_slowly(self, number: int) -> None:
        while not self.is_over():
            client = await self.running.connect()
            client.writer.write(request_bytes(stream_of(number, 400)))
            for _ in range(20):
                if self.is_over():
                    break
                with suppress(OSError):
                    await client.reader.read(1)
                await asyncio.sleep(1.0)
            client.writer.transport.abort()
            self.answers["read slowly"] += 1

    async def kill_replicas(self) -> None:
        chance = random.Random(1)
        while not self.is_over():
            await asyncio.sleep(KILL_SECONDS)
            victim = chance.choice(self.running.replicas)
            await victim.kill()
            self.kills += 1
            await asyncio.sleep(1.0)
            await victim.start()

    async def roll_revisions(self) -> None:
        while not self.is_over():
            await asyncio.sleep(ROLL_SECONDS / 2)
            self.revisions += 1
            new = self.running.replicas[self.revisions % REPLICAS]
            canary = {"revision": self.revisions, "share": 0.2}
            self._write(self.revisions, [new], canary)
            await asyncio.sleep(ROLL_SECONDS / 2)
            self._write(self.revisions, self.running.replicas, None)

    def _write(
        self, revision: int, moved: Sequence[Replica], canary: dict[str, Any] | None
    ) -> None:
        """Write routes in which some replicas have the new revision, and a new name, as
        those of a new revision have."""
        entries = []
        for replica in self.running.replicas:
            number = revision if replica in moved else revision - 1
            name = f"{replica.name}_{number}"
            entries.append({**replica.entry, "name": name, "revision": number})
        self.running.service = {"replicas": entries, "canary": canary}
        self.running.write_routes()

    async def rest(self) -> None:
        """Note the descriptors without a client, once idle connections are closed."""
        assert self.running.gateway is not None
        await asyncio.sleep(REST_SECONDS)
        self.at_rest.append(descriptors_of(self.running.gateway.pid))

    async def sample(self) -> None:
        while not self.is_over():
            await asyncio.sleep(SAMPLE_SECONDS)
            assert self.running.gateway is not None
            pid = self.running.gateway.pid
            self.memory_mb.append(resident_mb(pid))
            self.descriptors.append(descriptors_of(pid))


def descriptors_of(pid: int) -> int:
    """Return the number of open descriptors of a process and its children."""
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    count = len(os.listdir(f"/proc/{pid}/fd"))
    return count + sum(descriptors_of(int(child)) for child in children)


async def run(engine: str, seconds: float) -> Soak:
    with tempfile.TemporaryDirectory() as name:
        # streams continue by the text of the mock, or by the tokens of llama.cpp
        async with fleet(Path(name), engine, REPLICAS) as running:
            soak = Soak(running, 0.0)
            await soak.rest()
            soak.until = time.monotonic() + seconds
            await asyncio.gather(
                *(soak.send_requests(1000 * number) for number in range(6)),
                *(soak.send_streams(1000 * number) for number in range(6)),
                *(soak.leave_streams(number) for number in range(3)),
                *(soak.read_slowly(number) for number in range(4)),
                soak.kill_replicas(),
                soak.roll_revisions(),
                soak.sample(),
            )
            await soak.rest()
            assert running.gateway is not None
            running.gateway.send_signal(signal.SIGTERM)
            await running.gateway.wait()
    return soak


def report(soak: Soak, engine: str, begin: datetime) -> str:
    seconds = (datetime.now(UTC) - begin).total_seconds()
    load = ", ".join(f"{average:.1f}" for average in os.getloadavg())
    third = len(soak.memory_mb) // 3
    early = mean(soak.memory_mb[third : 2 * third] or [0.0])
    late = mean(soak.memory_mb[2 * third :] or [0.0])
    growth = late / early - 1.0 if early else 0.0
    middle = mean(soak.descriptors[third : 2 * third] or [0])
    end = mean(soak.descriptors[2 * third :] or [0])
    before, after = soak.at_rest
    failed = {
        what: count
        for what, count in soak.answers.items()
        if what.startswith(("request", "stream"))
        and what not in ("request 200", "stream whole")
    }
    rows = [f"| {what} | {count:,} |" for what, count in sorted(soak.answers.items())]
    memory = ", ".join(
        f"{value:.0f}" for value in soak.memory_mb[:: max(1, third // 4)]
    )
    return (
        f"# Soak of the gateway under churn, {engine}\n\n"
        f"{begin:%Y-%m-%d %H:%M} UTC, {platform.machine()}, {os.cpu_count()} cores, "
        f"load at the end {load}; Python {platform.python_version()}; {seconds:.0f} s.\n\n"
        f"{soak.kills} replicas were killed, {soak.revisions - 1} revisions were rolled.\n\n"
        "| end | count |\n| --- | --- |\n" + "\n".join(rows) + "\n\n"
        "| goal | measured | |\n| --- | --- | --- |\n"
        f"| no request and no stream fails | {sum(failed.values())} "
        f"| {_verdict(not failed)} |\n"
        f"| memory flat: last third within 5 % of the second | {early:.1f} to "
        f"{late:.1f} MB, {growth:+.1%} | {_verdict(growth <= MOST_GROWTH)} |\n"
        "| descriptors flat: last third within 10 % of the second "
        f"| {middle:.0f} to {end:.0f}, at most {max(soak.descriptors)} "
        f"| {_verdict(end <= MOST_MORE_DESCRIPTORS * middle)} |\n"
        "| descriptors at rest, before and after: the same "
        f"| {before} and {after} | {_verdict(after <= before)} |\n\n"
        f"Memory over the run, MB: {memory}.\n"
    )


def _verdict(is_met: bool) -> str:
    return "met" if is_met else "**missed**"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=600.0)
    parser.add_argument("--engine", choices=["mock", "llama"], default="mock")
    parser.add_argument("--no-keep", action="store_true", help="write no result")
    arguments = parser.parse_args()
    begin = datetime.now(UTC)
    soak = asyncio.run(run(arguments.engine, arguments.seconds))
    text = report(soak, arguments.engine, begin)
    print(text)
    if not arguments.no_keep:
        (RESULTS / f"gateway-soak-{begin:%Y-%m-%d}.md").write_text(text)


if __name__ == "__main__":
    main()
