"""Work of a head for its gateway: the routes are written at once, and nothing is done
without a service."""

import asyncio
import time
from collections.abc import Callable, Coroutine
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from corral.api.job_tokens import NAME, job_token
from corral.boot.gateway_process import GatewayProcess
from corral.boot.service_gateway import ServiceGateway
from corral.boot.settings import ClusterDir, ClusterSettings
from corral.control import Control
from corral.control.services import PublishedRoutes, ServiceTraffic
from corral.domain.ids import AttemptNumber, JobId, ServiceName, TokenId, UserName
from corral.domain.job_states import JobState
from corral.domain.users import HEAD, AuditEntry, Role, Token, User
from corral.domain.world import Changes
from corral.serve.batch_spec import BatchJob
from corral.store.memory_store import MemoryStore
from corral.wire.gateway_counters import (
    CountersReport,
    ReportedProcess,
    ReportedRevision,
    ReportedService,
    ReportedTokens,
)
from corral.wire.gateway_routes import RoutesFile, decode_routes
from tests.api.heads import PlainSeals, RealClock
from tests.control.services import counted, report, row, service, world_of

ENTRY = AuditEntry(at=1.0, by=HEAD, token=None, what="token.create", on="x")


class NoProcess(GatewayProcess):
    """A gateway that is never started."""

    looked_after = 0

    def look_after(self) -> bool:
        self.looked_after += 1
        return False


class Play:
    """A head that leads, as far as its gateway is concerned."""

    def __init__(self, root: Path) -> None:
        self.world = world_of()
        self.store = MemoryStore()
        self.traffic = ServiceTraffic()
        place = ClusterDir(root)
        self.process = NoProcess(place=place, settings=ClusterSettings())
        control = SimpleNamespace(
            world=self.world,
            store=self.store,
            traffic=self.traffic,
            routes=PublishedRoutes(),
            clock=RealClock(),
            serving_seconds=time.monotonic,
        )
        self.gateway = ServiceGateway(
            control=cast(Control, control), process=self.process, seals=PlainSeals()
        )

    @property
    def routes(self) -> RoutesFile | None:
        file = self.process.routes_file
        return decode_routes(file.read_bytes()) if file.exists() else None

    def commit(self, *rows: int) -> None:
        """The service with these replicas, all of them ready."""
        own = service(*map(row, rows))
        fresh = world_of(own)
        for book in ("services", "jobs", "attempts", "nodes"):
            getattr(self.world, book).clear()
            getattr(self.world, book).update(getattr(fresh, book))
        self.traffic.committed(self.world, Changes(services=(own,)))

    async def add_token(self, number: int, **more: Any) -> Token:
        token = Token(
            id=TokenId(f"t{number}"),
            sha256=f"{number:064x}",
            user=UserName("ann"),
            role=Role.USER,
            created_at=1.0,
            **more,
        )
        await self.store.add_token(token, entry=ENTRY)
        return token

    def replicas(self) -> int:
        return 0 if self.routes is None else len(self.routes.services[0].replicas)

    def callers(self) -> list[str]:
        return [] if self.routes is None else [one.name for one in self.routes.callers]


def play(root: Path, scenario: Callable[[Play], Coroutine[Any, Any, None]]) -> None:
    async def run() -> None:
        head = Play(root)
        user = User(name=UserName("ann"), role=Role.USER, created_at=1.0)
        await head.store.add_user(user, entry=ENTRY)
        work = asyncio.create_task(head.gateway.run())
        try:
            async with asyncio.timeout(20):
                await scenario(head)
            assert not work.done()
        finally:
            work.cancel()
            await asyncio.gather(work, return_exceptions=True)

    asyncio.run(run())


async def within(seconds: float, met: Callable[[], bool]) -> None:
    async with asyncio.timeout(seconds):
        while not met():
            await asyncio.sleep(0.002)


def test_without_a_service_nothing_is_done(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("corral.boot.service_gateway.LOOK_SECONDS", 0.01)

    async def scenario(head: Play) -> None:
        await head.add_token(1)
        await asyncio.sleep(0.1)
        assert list(tmp_path.iterdir()) == []
        assert head.process.looked_after == 0

    play(tmp_path, scenario)


def test_a_commit_is_in_the_routes_within_100_ms(tmp_path: Path) -> None:
    waits: list[float] = []

    async def scenario(head: Play) -> None:
        for count in (1, 2, 3, 4, 5):
            began = time.monotonic()
            head.commit(*range(1, count + 1))
            await within(5.0, lambda: head.replicas() == count)  # noqa: B023
            waits.append(time.monotonic() - began)
            await asyncio.sleep(0.06)
        assert head.process.routes_file.stat().st_mode & 0o777 == 0o600

    play(tmp_path, scenario)
    assert sorted(waits)[2] < 0.1


def test_tokens_are_callers_from_their_making_to_their_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("corral.boot.service_gateway.LOOK_SECONDS", 0.02)

    async def scenario(head: Play) -> None:
        head.commit(1)
        await within(5.0, lambda: head.routes is not None)
        await head.add_token(1)
        await head.add_token(2, expires_at=time.time() + 0.5)
        await within(5.0, lambda: head.callers() == ["ann/t1", "ann/t2"])
        await within(5.0, lambda: head.callers() == ["ann/t1"])
        await head.store.revoke_token(TokenId("t1"), at=2.0, entry=ENTRY)
        await within(5.0, lambda: head.callers() == [])

    play(tmp_path, scenario)


def test_the_budget_of_a_token_is_in_the_routes_as_far_as_it_is_not_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("corral.boot.service_gateway.LOOK_SECONDS", 0.01)

    def budgets(head: Play) -> list[tuple[str, int]]:
        entries = [] if head.routes is None else head.routes.budgets
        return [(entry.name, entry.part) for entry in entries]

    async def scenario(head: Play) -> None:
        head.commit(1)
        await head.add_token(1, tokens_per_month=1_000_000)
        await head.add_token(2)
        await within(5.0, lambda: len(head.callers()) == 2)
        assert head.routes is not None
        of_keys = [one.key_budget for one in head.routes.callers]
        assert of_keys == ["token t1", None]
        assert budgets(head) == [("token t1", 10_000)]  # a hundredth, for a new gateway
        tokens = ReportedTokens(prompt=150_000, output=50_000, requests=1)
        revision = ReportedRevision(revision=1, tokens={"ann/t1": tokens})
        chat = ReportedService(revisions=(revision,))
        process = ReportedProcess(process="p", services={"chat": chat})
        report = CountersReport(processes=(process,))
        head.traffic.take("gateway", report, time.monotonic())
        await within(5.0, lambda: budgets(head) == [("token t1", 8_000)])

    play(tmp_path, scenario)


def test_routes_are_written_only_when_they_change(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("corral.boot.service_gateway.LOOK_SECONDS", 0.01)

    async def scenario(head: Play) -> None:
        head.commit(1)
        await within(5.0, lambda: head.routes is not None)
        inode = head.process.routes_file.stat().st_ino
        head.traffic.changed.set()
        await asyncio.sleep(0.15)
        assert head.process.routes_file.stat().st_ino == inode
        head.world.services.pop(ServiceName("chat"))
        head.traffic.changed.set()
        await within(5.0, lambda: head.routes is not None and not head.routes.services)

    play(tmp_path, scenario)


def test_routes_that_cannot_be_written_are_written_later(tmp_path: Path) -> None:
    root = tmp_path / "c"

    async def scenario(head: Play) -> None:
        head.commit(1)
        await asyncio.sleep(0.1)
        root.mkdir()
        await within(5.0, lambda: head.routes is not None)

    play(root, scenario)


def test_the_token_of_a_running_job_calls_services_after_those_of_people(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("corral.boot.service_gateway.LOOK_SECONDS", 0.02)

    def change(head: Play, run: str = "serve", **changes: Any) -> None:
        job = head.world.jobs[JobId("j1_1")]
        spec = replace(job.spec, secrets=(NAME,), run=run)
        head.world.jobs[job.id] = replace(job, spec=spec, **changes)

    async def scenario(head: Play) -> None:
        await head.add_token(1)
        head.commit(1)
        await within(5.0, lambda: head.callers() == ["ann/t1"])
        change(head, owner=UserName("ann"))
        await within(5.0, lambda: head.callers() == ["ann/t1", "ann/j1_1.1"])
        assert head.routes is not None
        person, job = head.routes.callers
        assert (person.priority, job.priority) == ("normal", "low")
        secret = job_token(PlainSeals(), (JobId("j1_1"), AttemptNumber(1)))
        assert job.key_sha256 == sha256(secret.encode()).hexdigest()
        change(head, owner=UserName("stranger"))
        await within(5.0, lambda: head.callers() == ["ann/t1"])
        batch = BatchJob(service="chat", model="m", lines=1, folder="f")
        change(head, owner=UserName("ann"), run=batch.command)
        await within(5.0, lambda: head.callers() == ["ann/t1", "ann/j1_1.1/batch"])
        assert head.routes.callers[1].priority == "batch"
        change(head, owner=UserName("ann"), state=JobState.QUEUED)
        await within(5.0, lambda: head.callers() == ["ann/t1"])
        await asyncio.sleep(0.1)
        assert head.callers() == ["ann/t1"]

    play(tmp_path, scenario)


class TimedPlay(Play):
    """A head whose clocks stand still."""

    seconds = 100.0
    requests = 0

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        control = cast(SimpleNamespace, self.gateway.control)
        control.serving_seconds = lambda: self.seconds
        control.clock = SimpleNamespace(wall=lambda: self.seconds)


def test_the_use_of_a_token_at_a_service_is_recorded_once_a_minute(
    tmp_path: Path,
) -> None:
    async def use(play: TimedPlay) -> float | None:
        play.seconds += 1.0
        play.requests += 1
        tokens = {"ann/t1": (0, 0, 0, play.requests)}
        counters = report(chat=counted(play.requests, tokens=tokens))
        play.traffic.take("own", counters, play.seconds)
        await play.gateway._record_token_uses()
        token = await play.store.token(TokenId("t1"))
        assert token is not None
        return token.used_at

    async def main() -> None:
        play = TimedPlay(tmp_path)
        await play.add_token(1)
        assert await use(play) is None
        assert await use(play) == play.seconds
        first = play.seconds
        assert await use(play) == first
        play.seconds += 60.0
        await play.gateway._record_token_uses()  # without a further request
        token = await play.store.token(TokenId("t1"))
        assert token is not None
        assert token.used_at == play.seconds

    asyncio.run(main())
