"""Agents of a thousand nodes in one process: what each says and hears is as a real agent's, over
connections of its own; only its GPUs, its ranks and what they print are made up.

Run by benchmarks/head_load.py: fleet.py FILE, where FILE is the Plan as JSON. It reads commands
from its standard input, a line each: `begin` counts anew, `tell` prints the Tally as JSON, `end`.
"""

import asyncio
import gc
import logging
import random
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import msgspec
import uvloop
from websockets.asyncio.client import ClientConnection

from corral.agent.connection import Dialler
from corral.agent.head_addresses import HeadAddresses
from corral.agent.head_channel import HEARTBEATS, Heartbeats
from corral.agent.log_shipping import LOGS
from corral.agent.telemetry.messages import HeldAttempt
from corral.agent.telemetry.pretend import Pretend
from corral.domain.attempt import Exit
from corral.domain.desired_state import DesiredState, Launch, Version
from corral.domain.ids import BootId, NodeId
from corral.domain.node_signal import Signal, SignalKind
from corral.domain.observed_state import AttemptKey, Pace, Phase, Progress, Seen
from corral.domain.resources import Gpu, Inventory
from corral.domain.telemetry import DiskSample, NodeSample, PortSample
from corral.wire.agent_messages import (
    PROTOCOL,
    AttachNow,
    Hello,
    LogChunk,
    SignalNow,
    encode,
)
from corral.wire.tls import trusting

GPUS: Final = 8
SAMPLE_SECONDS: Final = 10.0
STEP_SECONDS: Final = 1.3
PRINT_SECONDS: Final = 10.0  # between two lines of a node's first rank
LIVES: Final = "PRETEND_SECONDS"  # in a job's env: so long its ranks run
LAG_SECONDS: Final = 0.01


class Plan(msgspec.Struct, kw_only=True):
    """`tokens`: of each node. `signal_seconds`: on average between two signals of one node."""

    head_file: str
    trusted: str
    tokens: dict[str, str]
    signal_seconds: float
    dial_seconds: float


class Tally(msgspec.Struct, kw_only=True):
    """Since the last `begin`. Seconds of `trips` are from a beat's leaving to its answer, of `lags`
    what this process itself came late."""

    sent: int = 0
    heard: int = 0
    lost: int = 0
    samples: int = 0
    signals: int = 0
    lines: int = 0
    talks: int = 0
    attempts: int = 0
    trips: list[float] = []
    lag_most_seconds: float = 0.0


@dataclass(slots=True)
class Ran:
    """An attempt's part on one node."""

    launch: Launch
    began: float
    ended: bool = False

    def seen(self, now: float) -> Seen:
        launch, ran = self.launch, now - self.began
        ranks = range(launch.first_rank, launch.first_rank + launch.ranks)
        if self.ended:
            exits = tuple((rank, Exit(code=0, at=time.time())) for rank in ranks)
            return Seen(key=launch.key, phase=Phase.ENDED, exits=exits, ran_seconds=ran)
        step = int(ran / STEP_SECONDS)
        spent = (step, 0.1 * step, 1.2 * step, 0.05 * step)
        progress = Progress(
            step=step,
            until=1_000_000,
            loss=3.0 / (1 + step),
            samples_per_second=812.5,
            data_seconds=spent[1],
            compute_seconds=spent[2],
            at=self.began + step * STEP_SECONDS,
            ranks=tuple(Pace(rank, *spent) for rank in ranks),
        )
        return Seen(
            key=launch.key,
            phase=Phase.UP,
            started_at=self.began,
            ran_seconds=ran,
            progress=progress,
        )


@dataclass(slots=True)
class PlayedNode:
    """Implements agent.channel.Node."""

    id: NodeId
    dialler: Dialler
    tally: Tally
    chance: random.Random
    signal_seconds: float
    has: Inventory = field(init=False)
    gpus: Pretend = field(init=False)
    beats: Heartbeats = field(init=False)
    ran: dict[AttemptKey, Ran] = field(default_factory=dict)
    obeyed: Version | None = None
    newest: NodeSample | None = None
    noticed: tuple[Signal, ...] = ()
    number: int = 0
    answered: int = 0
    printed: dict[AttemptKey, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        gpus = tuple(
            Gpu(
                index=at,
                uuid=f"GPU-{self.id}-{at}",
                type="h100",
                memory_bytes=80 * 10**9,
            )
            for at in range(GPUS)
        )
        ports = tuple(range(29500, 29516))
        self.has = Inventory(
            gpus=gpus, cpu_millis=128_000, memory_bytes=2 * 10**12, ports=ports
        )
        self.gpus = Pretend(gpus)
        self.beats = Heartbeats(node=self, clock=time.monotonic)

    # -- what a talk is about --------------------------------------------------------------------

    def hello(self) -> Hello:
        self.tally.talks += 1
        boot = BootId(f"boot-of-{self.id}")
        return Hello(
            protocol=PROTOCOL,
            node=self.id,
            boot=boot,
            address="127.0.0.1",
            inventory=self.has,
        )

    def seen(self) -> tuple[Seen, ...]:
        self.tally.sent += 1  # asked once a beat
        now = time.time()
        return tuple(one.seen(now) for one in self.ran.values())

    def version(self) -> Version | None:
        return self.obeyed

    def inventory(self) -> Inventory:
        return self.has

    def sample(self) -> NodeSample | None:
        return self.newest

    def signals(self) -> tuple[Signal, ...]:
        return self.noticed

    def heard(self, sent_at: float) -> None:
        self.tally.heard += 1
        self.answered += 1
        self.tally.trips.append(time.monotonic() - sent_at)

    def lost(self) -> int:
        """Heartbeats that were sent since it began, have no answer, and are not on their way."""
        return self.beats._number - self.answered - len(self.beats._sent)

    def recorded(self, signals: int, wall: float, trip_seconds: float) -> None:
        if self.noticed:
            self.noticed = tuple(one for one in self.noticed if one.number > signals)

    def named(self, heads: tuple[str, ...]) -> None:
        pass

    def wanted(self, wanted: DesiredState) -> None:
        self.obeyed = wanted.version
        for launch in wanted.run:
            if launch.key not in self.ran:
                self.ran[launch.key] = Ran(launch, time.time())
                self.tally.attempts += 1
                if lives := dict(launch.env).get(LIVES):
                    asyncio.get_running_loop().call_later(
                        float(lives), self._end, launch.key
                    )
        for stop in wanted.stop:
            self._end(stop.key)
        for key in wanted.settled:
            self.ran.pop(key, None)
            self.printed.pop(key, None)
        self.beats.wake()

    def attach(self, request: AttachNow) -> None:
        pass

    def signal(self, request: SignalNow) -> None:
        pass

    def _end(self, key: AttemptKey) -> None:
        if key in self.ran:
            self.ran[key].ended = True
            self.beats.wake()

    # -- what goes on by itself ------------------------------------------------------------------

    async def run(self, after: float) -> None:
        await asyncio.sleep(after)
        async with asyncio.TaskGroup() as parts:
            parts.create_task(self.dialler.keep(HEARTBEATS, self.beats.talk))
            parts.create_task(self.dialler.keep(LOGS, self._print))
            parts.create_task(self._sense())
            parts.create_task(self._notice())

    async def _sense(self) -> None:
        await asyncio.sleep(self.chance.uniform(0, SAMPLE_SECONDS))
        while True:
            self.newest = self._sample(time.time())
            self.tally.samples += 1
            await asyncio.sleep(SAMPLE_SECONDS)

    def _sample(self, at: float) -> NodeSample:
        held = [
            HeldAttempt(
                job=key[0],
                attempt=key[1],
                gpus=one.launch.seat.gpus,
                since=one.began,
                use=0.9,
                memory=0.7,
            )
            for key, one in self.ran.items()
            if not one.ended
        ]
        pids = {(one.job, one.attempt): (10_000 + at,) for at, one in enumerate(held)}
        port = {"up": True, "bits_per_second": 4e11}
        return NodeSample(
            at=at,
            cpu_utilisation=round(self.chance.uniform(0.2, 0.4), 4),
            memory_used_bytes=int(self.chance.uniform(3e11, 4e11)),
            memory_total_bytes=self.has.memory_bytes,
            pressure_cpu=0.01,
            pressure_memory=0.0,
            pressure_io=round(self.chance.uniform(0, 0.02), 4),
            clock_offset_seconds=0.0004,
            gpus=self.gpus.read(held, pids, at, {}),
            ports=tuple(
                PortSample(
                    name=f"mlx5_{rail}",
                    kind="infiniband",
                    received_bytes=int(at * 1e7),
                    sent_bytes=int(at * 1e7),
                    **port,
                )
                for rail in range(GPUS)
            ),
            disks=tuple(
                DiskSample(path=path, total_bytes=4 * 10**12, free_bytes=10**12)
                for path in ("/", "/scratch")
            ),
        )

    async def _notice(self) -> None:
        """Now and then corrected memory errors, which health counts and leaves alone."""
        while True:
            await asyncio.sleep(self.chance.expovariate(1 / self.signal_seconds))
            self.number += 1
            gpu = self.chance.randrange(GPUS)
            text = f"GPU {gpu} has corrected 12 memory errors"
            found = Signal(
                number=self.number,
                at=time.time(),
                kind=SignalKind.ECC,
                code=0,
                gpu=gpu,
                text=text,
            )
            self.noticed = (*self.noticed, found)
            self.tally.signals += 1
            self.beats.wake()

    async def _print(self, connection: ClientConnection) -> None:
        await asyncio.sleep(self.chance.uniform(0, PRINT_SECONDS))
        while True:
            for key, one in list(self.ran.items()):
                line = f"step {int(time.time() - one.began)} loss 2.4317 lr 3.0e-4 812.5/s\n"
                offset, data = self.printed.get(key, 0), line.encode()
                self.printed[key] = offset + len(data)
                await connection.send(
                    encode(
                        LogChunk(
                            job=key[0],
                            attempt=key[1],
                            rank=one.launch.first_rank,
                            offset=offset,
                            data=data,
                        )
                    )
                )
                await connection.recv()
                self.tally.lines += 1
            await asyncio.sleep(PRINT_SECONDS)


async def watch_lag(tally: Tally) -> None:
    """How late this process comes by itself: what of a trip is not the head's."""
    while True:
        due = time.monotonic() + LAG_SECONDS
        await asyncio.sleep(LAG_SECONDS)
        tally.lag_most_seconds = max(tally.lag_most_seconds, time.monotonic() - due)


async def obey(tally: Tally, nodes: "list[PlayedNode]") -> None:
    """What is asked on the standard input, until `end`."""
    reader = asyncio.StreamReader()
    loop = asyncio.get_running_loop()
    await loop.connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(reader), sys.stdin
    )
    before, fresh = 0, msgspec.to_builtins(Tally())
    while line := (await reader.readline()).strip():
        if line == b"end":
            return
        if line == b"begin":
            for name, value in fresh.items():
                setattr(tally, name, [] if name == "trips" else value)
        lost = sum(node.lost() for node in nodes)
        if line == b"begin":
            before = lost
        tally.lost = lost - before
        print(msgspec.json.encode(tally).decode(), flush=True)


async def main(plan: Plan) -> None:
    logging.disable()  # talks that begin anew are counted
    tally, chance = Tally(), random.Random(7)
    trusted = trusting(plan.trusted) if plan.trusted else None
    nodes, waits = [], []
    for name, token in plan.tokens.items():
        dialler = Dialler(
            heads=HeadAddresses(Path(plan.head_file)), token=token, trusted=trusted
        )
        seed = random.Random(chance.random())
        node = PlayedNode(NodeId(name), dialler, tally, seed, plan.signal_seconds)
        nodes.append(node)
        waits.append(
            asyncio.create_task(node.run(chance.uniform(0, plan.dial_seconds)))
        )
    waits.append(asyncio.create_task(watch_lag(tally)))
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 20)
    asking = asyncio.create_task(obey(tally, nodes))
    done, _ = await asyncio.wait([asking, *waits], return_when=asyncio.FIRST_COMPLETED)
    for one in done:
        one.result()


if __name__ == "__main__":
    uvloop.run(main(msgspec.json.decode(Path(sys.argv[1]).read_bytes(), type=Plan)))
