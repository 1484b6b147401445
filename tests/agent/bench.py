"""An agent in the test's own loop, with a supervisor that runs nothing, and a head
beside it."""

import asyncio
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from websockets.asyncio.client import ClientConnection

from corral.agent.agent import Agent
from corral.agent.connection import Dialler
from corral.agent.fetch_inputs import Prepare
from corral.agent.head_addresses import HeadAddresses
from corral.agent.image.image_cache import Images
from corral.agent.image.root import ImageRoot
from corral.agent.job_account import JobAccount
from corral.agent.last_desired import LastDesired
from corral.agent.outputs.kept_folders import KeptWorks
from corral.agent.outputs.server import OutputServer
from corral.agent.telemetry.sampler import Senses
from corral.agent.user_accounts import Accounts
from corral.agent.watching.rank_reports import RankReport
from corral.agent.watching.stack_server import StackServer
from corral.domain.attempt import Exit, Save, Seat
from corral.domain.desired_state import Launch, Stop, TimeWarning
from corral.domain.hang import StallPhase
from corral.domain.ids import AttemptNumber, BootId, JobId, NodeId
from corral.domain.job import Per
from corral.domain.observed_state import AttemptKey, Phase, Seen
from corral.domain.resources import Inventory
from corral.wire.agent_messages import AttachNow, SignalNow
from corral.wire.node import NodeSettings, encode_settings
from tests.agent.fakehead import TOKEN, FakeHead
from tests.agent.nodes import ME, write_policy
from tests.patience import PATIENCE_SECONDS

NODE = NodeId("n1")


def key_of(job: int, attempt: int = 1) -> AttemptKey:
    return (JobId(f"j{job}"), AttemptNumber(attempt))


def launch_of(key: AttemptKey, run: str = "true", **more: object) -> Launch:
    launch = Launch(
        key=key,
        job_name=f"job-{key[0]}",
        seat=Seat(node=NODE),
        node_rank=0,
        nodes=("127.0.0.1",),
        first_rank=0,
        ranks=1,
        world_size=1,
        master_address="127.0.0.1",
        master_port=20_000,
        run=run,
        setup=None,
        per=Per.NODE,
        env=(),
        secrets=(),
        workdir=None,
        owner=ME,
        array_index=None,
        checkpoint=None,
        resume=(),
        grace_seconds=1.0,
        node_mtbf_seconds=86_400.0,
    )
    return replace(launch, **more)  # type: ignore[arg-type]


def stop_of(key: AttemptKey) -> Stop:
    return Stop(key=key, grace_seconds=1.0, save=False, why="cancel")


@dataclass
class FakeRanks:
    """Remembers what it was told; an attempt is up at once and ends when the test says
    so."""

    attempts: dict[AttemptKey, Seen] = field(default_factory=dict)
    launched: list[AttemptKey] = field(default_factory=list)
    environments: dict[AttemptKey, Mapping[str, str]] = field(default_factory=dict)
    works: dict[AttemptKey, Path] = field(default_factory=dict)
    stopped: list[Stop] = field(default_factory=list)
    warned: list[TimeWarning] = field(default_factory=list)
    told_committed: list[tuple[AttemptKey, tuple[int, ...]]] = field(
        default_factory=list
    )
    settled: list[AttemptKey] = field(default_factory=list)
    launches: dict[AttemptKey, Launch] = field(default_factory=dict)
    accounts: dict[AttemptKey, JobAccount | None] = field(default_factory=dict)
    hold: asyncio.Event | None = None  # a launch waits for it

    async def launch(
        self,
        launch: Launch,
        work: Path,
        env: Mapping[str, str],
        image: ImageRoot | None = None,
        account: JobAccount | None = None,
    ) -> None:
        self.launched.append(launch.key)
        self.accounts[launch.key] = account
        self.launches[launch.key] = launch
        self.works[launch.key], self.environments[launch.key] = work, env
        if self.hold is not None:
            await self.hold.wait()
        self.attempts[launch.key] = Seen(key=launch.key, phase=Phase.UP)

    def stop(self, stop: Stop) -> None:
        self.stopped.append(stop)

    def committed(
        self,
        key: AttemptKey,
        steps: tuple[int, ...],
        pinned: tuple[tuple[int, int], ...] = (),
    ) -> None:
        self.told_committed.append((key, steps))

    def warn(self, notice: TimeWarning) -> None:
        self.warned.append(notice)

    def free_memory(self) -> None:
        pass

    def overrun(self, key: AttemptKey, why: str) -> None:
        """No test bounds the disk of these."""

    def settle(self, key: AttemptKey) -> None:
        self.settled.append(key)
        self.attempts.pop(key, None)

    def refuse(self, key: AttemptKey, why: str, infra: bool, of: str = "") -> None:
        self.attempts[key] = Seen(
            key=key,
            phase=Phase.REFUSED,
            trouble=why,
            trouble_is_infra=infra,
            trouble_of=of,
        )

    def rank_reports(self, key: AttemptKey) -> Mapping[int, RankReport]:
        return {}

    def declared_phases(self, key: AttemptKey) -> frozenset[StallPhase]:
        return frozenset()

    def seen(self) -> tuple[Seen, ...]:
        return tuple(self.attempts.values())

    def end(self, key: AttemptKey, code: int = 0, saves: tuple[Save, ...] = ()) -> None:
        exits = ((0, Exit(code=code)),)
        self.attempts[key] = Seen(key=key, phase=Phase.ENDED, exits=exits, saves=saves)


@dataclass
class Bench:
    folder: Path
    head: FakeHead
    ranks: FakeRanks
    agent: Agent
    attached: list[AttachNow]
    sent: list[SignalNow]

    async def until(self, true: object, seconds: float = PATIENCE_SECONDS) -> None:
        await self.head.until(true, seconds)  # type: ignore[arg-type]


def read(file: Path, offset: int, most_bytes: int) -> tuple[int, bytes]:
    with file.open("rb") as opened:
        opened.seek(offset)
        return offset, opened.read(most_bytes)


def settings_in(folder: Path, **more: Any) -> NodeSettings:
    """Of two pretend GPUs, written where an agent reads them."""
    settings = NodeSettings(
        node=NODE, head_file=str(folder / "head.json"), **{"pretend_gpus": 2, **more}
    )
    (folder / "node.json").touch(mode=0o600)
    (folder / "node.json").write_bytes(encode_settings(settings))
    return settings


def without_senses(folder: Path) -> Senses:
    """Of an agent whose sensors nobody reads."""
    settings = NodeSettings(node=NODE, head_file="", sample_seconds=0.0)
    return Senses(node_dir=folder, settings=settings, boot=BootId("b1"))


def agent_in(
    folder: Path,
    ranks: FakeRanks,
    attached: list[AttachNow],
    tries_seconds: float = 2.0,
    sent: list[SignalNow] | None = None,
    senses: Senses | None = None,
) -> Agent:
    (folder / "attempts").mkdir(parents=True, exist_ok=True)
    write_policy(folder)
    settings = NodeSettings(node=NODE, head_file=str(folder / "head.json"))
    dialler = Dialler(heads=HeadAddresses(folder / "head.json", folder), token=TOKEN)

    async def look(held: frozenset[int]) -> Inventory:
        return Inventory(cpu_millis=2000, ports=tuple(held))

    async def pump(request: AttachNow, connection: ClientConnection) -> None:
        attached.append(request)
        async for frame in connection:
            await connection.send(b"echo " + bytes(frame))  # type: ignore[arg-type]

    return Agent(
        node_dir=folder,
        settings=settings,
        boot=BootId("b1"),
        ranks=ranks,
        known=LastDesired(folder, time.clock_gettime(time.CLOCK_BOOTTIME)),
        dialler=dialler,
        prepare=Prepare(
            images=Images(folder),
            accounts=Accounts(node_dir=folder, settings=settings),
            node_dir=folder,
            heads=dialler.heads,
            token=TOKEN,
            tries_seconds=tries_seconds,
        ),
        read=read,
        look=look,
        pump=pump,
        send=(sent if sent is not None else []).append,
        clock=lambda: time.clock_gettime(time.CLOCK_BOOTTIME),
        senses=senses or without_senses(folder),
        outputs=OutputServer(folder / "attempts"),
        stacks=StackServer(folder / "attempts"),
        rank_reports=ranks,
        kept_works=KeptWorks(attempts=folder / "attempts"),
    )


@asynccontextmanager
async def running(agent: Agent) -> AsyncIterator[None]:
    task = asyncio.create_task(agent.run())
    try:
        yield
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


@asynccontextmanager
async def bench(folder: Path, tries_seconds: float = 2.0) -> AsyncIterator[Bench]:
    """An agent and its head, talking; what the head cannot give now is tried for so
    long."""
    head, ranks, attached = (
        FakeHead(file=folder / "head.json"),
        FakeRanks(),
        list[AttachNow](),
    )
    sent = list[SignalNow]()
    agent = agent_in(folder, ranks, attached, tries_seconds, sent)
    await head.start()
    try:
        async with running(agent):
            await head.until(lambda: head.beats)
            yield Bench(folder, head, ranks, agent, attached, sent)
    finally:
        await head.die()
