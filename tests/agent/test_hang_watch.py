"""Hangs of real processes: reported with the right rank, and healthy ones are not."""

import asyncio
import json
import os
import sys
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from corral.agent.clocks import since_boot
from corral.agent.supervisor.supervisor import Supervisor
from corral.agent.watching.hang_watch import TICK_SECONDS, HangWatch
from corral.agent.watching.rank_reports import RankReport
from corral.agent.watching.rank_samples import RankSample
from corral.domain.desired_state import Launch
from corral.domain.hang import NodeHang, StallPhase, WatchRule
from corral.domain.ids import NodeId
from corral.domain.observed_state import AttemptKey, Phase, Progress, Seen
from corral.health.hang import HangVerdict, StuckSign, hang_verdict
from corral.health.progress_bounds import LEAST_BOUNDS, LeastBounds
from tests.agent.gang_program import write_gang_program
from tests.agent.nodes import Node, launch_of, node
from tests.patience import PATIENCE_SECONDS

RANKS = 3
LAST_STEP = 12  # after each pause
CULPRIT = 1
BOUNDS = LeastBounds(step_seconds=3.0, early_seconds=6.0, phase_seconds=6.0)
PAUSE_SECONDS = 7.0  # of the healthy ones, longer than the bound


class Watched:
    """Gangs on one node, by kind, and the watch of their steps."""

    def __init__(self, here: Node, rule: WatchRule, bounds: LeastBounds) -> None:
        self.here = here
        self.rule = rule
        self.launches: dict[AttemptKey, Launch] = {}
        self.pause_seconds = PAUSE_SECONDS
        self.program = write_gang_program(here.dir / "program")
        self.watch = HangWatch(
            here.dir / "attempts",
            here.supervisor,
            here.changed.set,
            since_boot,
            least=bounds,
        )

    async def start(self, kind: str, python: str = sys.executable) -> AttemptKey:
        gang = self.here.dir / "gangs" / kind
        gang.mkdir(parents=True)
        launch = launch_of(
            f"exec {python} {self.program}",
            name=kind.replace("_", "-"),
            ranks=RANKS,
            world_size=RANKS,
            watch=True,
            hang=self.rule,
            env=(
                ("HANG_KIND", kind),
                ("PAUSE", str(self.pause_seconds)),
                ("GANG", str(gang)),
            ),
        )
        self.launches[launch.key] = launch
        return await self.here.launch(launch)

    def look(self) -> Mapping[AttemptKey, Seen]:
        seens = self.here.supervisor.seen()
        self.watch.follow(self.launches, seens)
        return {seen.key: seen for seen in self.watch.reported(seens)}

    def due(self) -> dict[AttemptKey, HangVerdict]:
        """Return the verdicts on those that hang."""
        verdicts = {
            key: hang_verdict({NodeId("n1"): seen.hang})
            for key, seen in self.look().items()
            if seen.hang is not None
        }
        return {key: verdict for key, verdict in verdicts.items() if verdict.is_due}

    async def until(self, true: Callable[[], bool], what: str) -> None:
        deadline = time.monotonic() + PATIENCE_SECONDS
        while not true():
            assert time.monotonic() < deadline, (what, self.look())
            await asyncio.sleep(0.05)


@asynccontextmanager
async def watching(
    node_dir: Path, *, rule: WatchRule | None = None, bounds: LeastBounds = BOUNDS
) -> AsyncIterator[Watched]:
    async with node(node_dir) as here:
        watched = Watched(here, rule or WatchRule(), bounds)
        try:
            yield watched
        finally:
            await watched.watch.close()


def step_of(seen: Seen) -> int:
    return 0 if seen.progress is None else seen.progress.step


HANGS = {
    "sleep": (StuckSign.OUTSIDE_COLLECTIVE, "sleep"),
    "stopped": (StuckSign.STOPPED, "stopped"),
    "spin": (StuckSign.OUTSIDE_COLLECTIVE, "spin"),
    "held_gil": (StuckSign.OUTSIDE_COLLECTIVE, "held_gil"),
    "loader": (StuckSign.OUTSIDE_COLLECTIVE, "deadlock"),
    "ends": (StuckSign.ABSENT, ""),
}


@pytest.mark.parametrize(
    "bounds", [BOUNDS, pytest.param(LEAST_BOUNDS, marks=pytest.mark.soak)]
)
async def test_the_stuck_rank_of_each_hang_is_named(
    node_dir: Path, bounds: LeastBounds
) -> None:
    verdicts: dict[AttemptKey, HangVerdict] = {}
    async with watching(node_dir, bounds=bounds) as watched:
        keys = {kind: await watched.start(kind) for kind in HANGS}

        def all_are_due() -> bool:
            sure = {
                key: verdict
                for key, verdict in watched.due().items()
                if verdict.is_sure
            }
            verdicts.update(sure)
            return len(verdicts) == len(HANGS)

        await watched.until(all_are_due, "a verdict on each gang")
        evidence = {
            kind: watched.here.work(key).parent / "hang" / "1"
            for kind, key in keys.items()
        }
        for kind, (sign, function) in HANGS.items():
            verdict = verdicts[keys[kind]]
            assert (verdict.rank, verdict.sign) == (CULPRIT, sign), (kind, verdict)
            assert not verdict.blames_machine
            assert function in verdict.frame, kind
            stacks = json.loads((evidence[kind] / "stacks-2.json").read_bytes())
            ranks_alive = {0, 2} if kind == "ends" else {0, 1, 2}
            assert ranks_alive <= {process["rank"] for process in stacks}
            observed = json.loads((evidence[kind] / "ranks.json").read_bytes())
            assert observed["hang"]["bound_seconds"] >= bounds.step_seconds


HEALTHY = (
    "first_step",
    "growing",
    "evaluate",
    "measure",
    "pause",
    "write",
    "slow_loader",
)


@pytest.mark.parametrize(
    ("bounds", "pause_seconds"),
    [
        (BOUNDS, PAUSE_SECONDS),
        pytest.param(LEAST_BOUNDS, 25.0, marks=pytest.mark.soak),
    ],
)
async def test_healthy_irregular_gangs_are_not_blamed(
    node_dir: Path, bounds: LeastBounds, pause_seconds: float
) -> None:
    async with watching(node_dir, bounds=bounds) as watched:
        watched.pause_seconds = pause_seconds
        keys = [await watched.start(kind) for kind in HEALTHY]

        def all_went_on() -> bool:
            assert watched.due() == {}
            seens = watched.look()
            return all(step_of(seens[key]) > LAST_STEP for key in keys)

        await watched.until(all_went_on, "more steps of each gang")
        seens = watched.look()
        await watched.until(
            lambda: all(seen.hang is None for seen in watched.look().values()),
            "the end of the reports",
        )
        assert len(seens) == len(HEALTHY)


async def test_the_first_step_is_bounded_by_the_user_alone(node_dir: Path) -> None:
    rule = WatchRule(bound_seconds=2.5)
    async with watching(node_dir, rule=rule) as watched:
        key = await watched.start("first_step")
        await watched.until(lambda: key in watched.due(), "a verdict")
        hang = watched.look()[key].hang
    assert hang is not None
    assert (hang.is_user_bound, hang.bound_seconds) == (True, 2.5)


async def test_without_py_spy_the_ranks_say_where_they_stand(node_dir: Path) -> None:
    bounds = replace(BOUNDS, step_seconds=8.0)  # they say it after 5 s
    async with watching(node_dir, bounds=bounds) as watched:
        key = await watched.start("sleep")
        await watched.until(lambda: key in watched.look(), "the attempt")
        with (
            mock.patch("sys.executable", "/nowhere/python"),
            mock.patch.dict(os.environ, {"PATH": "/nowhere"}),
        ):
            await watched.until(lambda: key in watched.due(), "a verdict")
        verdict = watched.due()[key]
        hang = watched.look()[key].hang
        evidence = watched.here.work(key).parent / "hang" / "1" / "ranks.json"
        observed = json.loads(evidence.read_bytes())
    assert (verdict.rank, verdict.is_sure) == (CULPRIT, True)
    assert verdict.frame.endswith("in sleep")
    assert hang is not None
    assert "py-spy is not installed" in hang.cannot_read
    assert observed["collectives"]["0"][-1] == [9, "gloo:all_reduce"]
    assert observed["collectives"][str(CULPRIT)][-1] == [8, "gloo:all_reduce"]


# --- with a clock of its own, and looks that read no process


class Clock:
    """A clock that the test sets."""

    def __init__(self) -> None:
        self.seconds = 1000.0

    def __call__(self) -> float:
        return self.seconds


class Reports:
    """What ranks have reported."""

    phases: frozenset[StallPhase] = frozenset()

    def rank_reports(self, key: AttemptKey) -> Mapping[int, RankReport]:
        return {}

    def declared_phases(self, key: AttemptKey) -> frozenset[StallPhase]:
        return self.phases


@dataclass(slots=True)
class Still:
    """A watch of one attempt, whose ranks are never found."""

    folder: Path
    clock: Clock = field(default_factory=Clock)
    reports: Reports = field(default_factory=Reports)
    looks: int = 0
    reports_made: int = 0
    seen: Seen = field(init=False)
    watch: HangWatch = field(init=False)

    def __post_init__(self) -> None:
        async def no_samples(folder: Path, reports: object) -> list[RankSample]:
            self.looks += 1
            sample = RankSample(at=0.0, stacks=(), counters={})
            return [sample, sample]

        self.watch = HangWatch(
            self.folder,
            self.reports,
            self._count_report,
            self.clock,
            samples=no_samples,
        )

    def _count_report(self) -> None:
        if self.report() is not None:
            self.reports_made += 1

    def report(self) -> NodeHang | None:
        """Return the newest report."""
        (seen,) = self.watch.reported([self.seen])
        return seen.hang

    async def pass_seconds(self, seconds: float, step: int, **progress: Any) -> None:
        """Let the ticks of some time happen, all with this newest step."""
        launch = launch_of("", hang=WatchRule())
        self.seen = Seen(
            key=launch.key, phase=Phase.UP, progress=Progress(step=step, **progress)
        )
        for _ in range(round(seconds / TICK_SECONDS)):
            self.watch.follow({launch.key: launch}, [self.seen])
            self.clock.seconds += TICK_SECONDS
            looks = self.looks
            self.watch.tick()
            await asyncio.sleep(0)
            if self.looks > looks:
                await self._reported()

    async def _reported(self) -> None:
        """Wait until the evidence of a round of looks is written."""
        deadline = time.monotonic() + PATIENCE_SECONDS
        while self.reports_made < self.looks:
            assert time.monotonic() < deadline
            await asyncio.sleep(0.001)

    async def make_steps(self) -> None:
        for step in range(1, 6):
            await self.pass_seconds(1.0, step)


@pytest.fixture
def still(tmp_path: Path) -> Still:
    return Still(tmp_path)


async def test_looks_begin_shortly_before_the_bound(still: Still) -> None:
    await still.make_steps()
    await still.pass_seconds(7.0, 5)
    assert still.looks == 0
    await still.pass_seconds(2.0, 5)
    assert still.looks > 0
    await still.watch.close()


async def test_time_in_which_the_agent_was_not_scheduled_does_not_count(
    still: Still,
) -> None:
    await still.make_steps()
    await still.pass_seconds(4.0, 5)
    still.clock.seconds += 60.0  # the whole node is paused
    await still.pass_seconds(3.0, 5)
    assert still.looks == 0
    await still.pass_seconds(2.0, 5)
    assert still.looks > 0
    await still.watch.close()


async def test_a_declared_phase_has_more_time(still: Still) -> None:
    await still.make_steps()
    still.reports.phases = frozenset({StallPhase.EVALUATE})
    await still.pass_seconds(200.0, 5)
    hang = still.report()
    assert hang is not None
    assert (hang.phase, hang.bound_seconds) == (StallPhase.EVALUATE, 300.0)
    assert hang.stalled_seconds < 200.0
    still.reports.phases = frozenset()
    await still.pass_seconds(7.0, 5)
    assert still.report() is None  # the end of a phase is progress
    await still.pass_seconds(3.0, 5)
    hang = still.report()
    assert hang is not None
    assert (hang.phase, hang.bound_seconds) == (StallPhase.COMPUTE, 10.0)
    await still.watch.close()


async def test_after_its_last_step_a_program_has_more_time(still: Still) -> None:
    await still.make_steps()
    await still.pass_seconds(200.0, 6, until=6)
    hang = still.report()
    assert hang is not None
    assert (hang.phase, hang.bound_seconds) == (StallPhase.SAVE, 300.0)
    await still.watch.close()


async def test_a_replica_and_a_job_without_the_rule_are_not_watched(
    still: Still,
) -> None:
    launch = launch_of("")
    seen = Seen(key=launch.key, phase=Phase.UP, progress=Progress(step=3))
    for changed in (launch, replace(launch, hang=WatchRule(is_on=False))):
        still.watch.follow({launch.key: changed}, [seen])
        for _ in range(200):
            still.clock.seconds += TICK_SECONDS
            still.watch.tick()
        await asyncio.sleep(0)
    assert still.looks == 0


DECLARES = """
import json, os, socket, sys
line = socket.socket(socket.AF_UNIX)
line.connect(os.environ["CORRAL_SOCKET"])
for phase in sys.stdin:
    message = {"type": "phase", "rank": 0, "phase": phase.strip()}
    line.sendall(json.dumps(message).encode() + b"\\n")
"""


async def test_a_phase_that_a_rank_declares_reaches_the_agent(node_dir: Path) -> None:
    (node_dir / "declares.py").write_text(DECLARES)
    async with node(node_dir) as here:
        run = f"exec {sys.executable} {node_dir}/declares.py"
        key = await here.launch(launch_of(run))
        supervisor = here.supervisor
        await here.phase(key, Phase.UP)
        _, writer = await supervisor.attach(key, 0, shell=False)
        for phase, declared in (
            ("evaluate", {StallPhase.EVALUATE}),
            ("save", {StallPhase.SAVE}),
            ("", set()),
        ):
            writer.write(f"{phase}\n".encode())
            await here.until(
                partial(is_declared, supervisor, key, declared), f"the phase {phase}"
            )
        writer.end()
        await here.ended(key)


def is_declared(
    supervisor: Supervisor, key: AttemptKey, declared: set[StallPhase]
) -> bool:
    return supervisor.declared_phases(key) == declared
