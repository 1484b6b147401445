"""How fast a hang of a training program is reported, whether the right rank is named,
and how often a healthy program is blamed.

Run: .venv/bin/python benchmarks/hangs.py [--write FILE.md] [--rounds N] [--at-once N]
     [--only KIND ...]

Each run is a real training with RANKS gloo ranks of an unchanged PyTorch program, on a
node of its own; the verdict is computed from the node's report as a head does. A hang is
acted on when the verdict says that it is time. In half of the runs, torchrun starts the
ranks.
"""

import argparse
import asyncio
import os
import platform
import random
import signal
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from corral.agent.clocks import since_boot
from corral.agent.watching.hang_watch import HangWatch
from corral.domain.hang import WatchRule
from corral.domain.ids import NodeId
from corral.domain.job import Per
from corral.domain.observed_state import AttemptKey, Phase, Seen
from corral.health.hang import HangVerdict, hang_verdict
from tests.agent.nodes import Node, launch_of, node, node_folder

PROGRAM = Path(__file__).parent / "hang_programs" / "train.py"
RANKS = 3
HANGS = (
    "sleep",
    "stopped",
    "spin",
    "held_gil",
    "deadlock",
    "poll",
    "read_pipe",
    "child",
    "uninterruptible",
    "socket",
    "loader_deadlock",
    "collective_too_many",
    "collective_too_few",
    "collective_and_sleep",
)
PAUSED_WITH_AGENT = "paused_with_agent"
HEALTHY = (
    "long_first_step",
    "growing_steps",
    "irregular_steps",
    "evaluation",
    "evaluation_of_one",
    "unnamed_evaluation",
    "unnamed_pause",
    "unnamed_pause_of_one",
    "save",
    "slow_loader",
    "paused",
    PAUSED_WITH_AGENT,
    "ends_late",
)
BEGIN_SECONDS = 400.0
HANG_SECONDS = 60.0
HEALTHY_SECONDS = 45.0
PAUSE_SECONDS = 20.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """Result of one run. `seconds`: from the newest step to the verdict; None without
    one."""

    kind: str
    launcher: str
    culprit: int
    seconds: float | None
    bound_seconds: float
    verdict: HangVerdict | None


class Watcher:
    """The watch of one node, and the verdict on its only attempt."""

    def __init__(self, here: Node, rule: WatchRule, key: AttemptKey) -> None:
        self.here = here
        self.key = key
        self.stepped_at = time.monotonic()
        self._step = 0
        self._launch = {key: launch_of("", hang=rule)}
        self.watch = HangWatch(
            here.dir / "attempts", here.supervisor, here.changed.set, since_boot
        )

    def look(self) -> tuple[Seen, HangVerdict | None]:
        """Return the newest report, and the verdict if it is time to act."""
        seens = self.here.supervisor.seen()
        self.watch.follow(self._launch, seens)
        (seen,) = self.watch.reported(seens)
        step = 0 if seen.progress is None else seen.progress.step
        if step != self._step:
            self._step, self.stepped_at = step, time.monotonic()
        if seen.hang is None:
            return seen, None
        verdict = hang_verdict({NodeId("n1"): seen.hang})
        return seen, verdict if verdict.is_due else None


async def measure(kind: str, launcher: str, culprit: int, at_step: int) -> Outcome:
    with node_folder() as folder:
        async with node(folder) as here:
            return await _measure(here, kind, launcher, culprit, at_step)


async def _measure(
    here: Node, kind: str, launcher: str, culprit: int, at_step: int
) -> Outcome:
    environment = (
        ("HANG_KIND", kind),
        ("HANG_RANK", str(culprit)),
        ("HANG_STEP", str(at_step)),
        ("OMP_NUM_THREADS", "1"),
    )
    python = sys.executable
    if launcher == "torchrun":
        torchrun = f"{python} -m torch.distributed.run --standalone"
        run = f"exec {torchrun} --nproc-per-node {RANKS} {PROGRAM}"
        launch = launch_of(run, per=Per.NODE, env=environment, watch=True)
    else:
        run = f"exec {python} {PROGRAM}"
        port = 20_000 + (os.getpid() * 31 + random.randrange(5_000)) % 10_000
        launch = launch_of(
            run,
            ranks=RANKS,
            world_size=RANKS,
            env=environment,
            watch=True,
            master_port=port,
        )
    key = await here.launch(launch)
    watcher = Watcher(here, WatchRule(), key)
    is_hang = kind in HANGS
    try:
        await _until(watcher, lambda seen: _step_of(seen) >= 2, BEGIN_SECONDS, here)
        if kind.startswith("paused"):
            _pause(here, key, with_agent=kind == PAUSED_WITH_AGENT)
        seconds = HANG_SECONDS if is_hang else HEALTHY_SECONDS
        return await _outcome(watcher, kind, launcher, culprit, seconds)
    finally:
        await watcher.watch.close()


async def _outcome(
    watcher: Watcher, kind: str, launcher: str, culprit: int, seconds: float
) -> Outcome:
    until = time.monotonic() + seconds
    bound = 0.0
    seen, verdict = watcher.look()
    while time.monotonic() < until and seen.phase is Phase.UP:
        seen, verdict = watcher.look()
        if seen.hang is not None:
            bound = seen.hang.bound_seconds
        if verdict is not None:
            break
        await asyncio.sleep(0.05)
    after = None if verdict is None else time.monotonic() - watcher.stepped_at
    if os.environ.get("SHOW") and seen.hang is not None:
        print(seen.hang, flush=True)
    if seen.phase is not Phase.UP and kind != "ends_late":
        print(kind, "ended early:", watcher.here.log(watcher.key)[-2000:], flush=True)
    return Outcome(
        kind=kind,
        launcher=launcher,
        culprit=culprit,
        seconds=after,
        bound_seconds=bound,
        verdict=verdict,
    )


async def _until(
    watcher: Watcher, true: Callable[[Seen], bool], seconds: float, here: Node
) -> None:
    until = time.monotonic() + seconds
    while not true(watcher.look()[0]):
        if time.monotonic() > until:
            raise TimeoutError(here.log(watcher.key)[-2000:])
        await asyncio.sleep(0.05)


def _step_of(seen: Seen) -> int:
    return 0 if seen.progress is None else seen.progress.step


def _pause(here: Node, key: AttemptKey, *, with_agent: bool) -> None:
    """Stop all ranks for PAUSE_SECONDS, and with them this process, which watches."""
    _signal_ranks(here, key, signal.SIGSTOP)
    if with_agent:
        time.sleep(PAUSE_SECONDS)
        _signal_ranks(here, key, signal.SIGCONT)
        return
    asyncio.get_running_loop().call_later(
        PAUSE_SECONDS, _signal_ranks, here, key, signal.SIGCONT
    )


def _signal_ranks(here: Node, key: AttemptKey, number: int) -> None:
    mark = f"CORRAL_SOCKET={here.work(key).parent}/".encode()
    for entry in os.listdir("/proc"):
        if entry.isdecimal():
            try:
                if mark in Path(f"/proc/{entry}/environ").read_bytes():
                    os.kill(int(entry), number)
            except OSError:
                continue


async def run_all(kinds: Sequence[str], rounds: int, at_once: int) -> list[Outcome]:
    """Measure all kinds. The pauses of this process come last, one after the other."""
    places = asyncio.Semaphore(at_once)
    chance = random.Random(7)

    async def run(number: int, kind: str) -> Outcome:
        async with places:
            outcome = await measure(
                kind,
                "torchrun" if (number + kinds.index(kind)) % 2 else "ranks",
                chance.randrange(RANKS),
                chance.randrange(5, 30),
            )
        print(_line(outcome), flush=True)
        return outcome

    runs = [(number, kind) for number in range(rounds) for kind in kinds]
    outcomes = await asyncio.gather(
        *(run(number, kind) for number, kind in runs if kind != PAUSED_WITH_AGENT)
    )
    for number, kind in runs:
        if kind == PAUSED_WITH_AGENT:
            outcomes.append(await run(number, kind))
    return outcomes


def _line(outcome: Outcome) -> str:
    verdict = outcome.verdict
    text = "no verdict" if verdict is None else f"rank {verdict.rank}: {verdict.why}"
    seconds = "-" if outcome.seconds is None else f"{outcome.seconds:.1f}"
    return (
        f"| {outcome.kind} | {outcome.launcher} | {outcome.culprit} | {seconds} |"
        f" {outcome.bound_seconds:.1f} | {text} |"
    )


def summary(outcomes: Sequence[Outcome]) -> str:
    hangs = [outcome for outcome in outcomes if outcome.kind in HANGS]
    healthy = [outcome for outcome in outcomes if outcome.kind in HEALTHY]
    acted = [outcome for outcome in hangs if outcome.seconds is not None]
    in_time = [
        outcome
        for outcome in acted
        if (outcome.seconds or 0.0) <= outcome.bound_seconds + 3.0
    ]
    right = [
        outcome
        for outcome in hangs
        if outcome.verdict is not None and outcome.verdict.rank == outcome.culprit
    ]
    blamed = [
        outcome
        for outcome in hangs
        if outcome.verdict is not None
        and outcome.verdict.rank not in (None, outcome.culprit)
    ]
    tripped = [outcome for outcome in healthy if outcome.verdict is not None]
    seconds = [outcome.seconds or 0.0 for outcome in acted] or [0.0]
    return "\n".join(
        [
            "| measure | result |",
            "| --- | --- |",
            f"| hangs, of {len({outcome.kind for outcome in hangs})} kinds | {len(hangs)} |",
            f"| reported within the bound + 3 s | {len(in_time)} |",
            f"| right rank named | {len(right)} |",
            f"| another rank named | {len(blamed)} |",
            f"| seconds from the newest step: median, most |"
            f" {statistics.median(seconds):.1f}, {max(seconds):.1f} |",
            f"| healthy irregular runs | {len(healthy)} |",
            f"| healthy runs reported as hangs | {len(tripped)} |",
        ]
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--write", type=Path)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--at-once", type=int, default=3)
    parser.add_argument("--only", nargs="*", default=[*HANGS, *HEALTHY])
    arguments = parser.parse_args()
    outcomes = asyncio.run(run_all(arguments.only, arguments.rounds, arguments.at_once))
    text = summary(outcomes)
    print(text)
    if arguments.write is not None:
        rows = "\n".join(_line(outcome) for outcome in outcomes)
        arguments.write.write_text(
            f"# Hangs: report and blame\n\n"
            f"{datetime.now(UTC):%Y-%m-%d}, {platform.machine()}, {os.cpu_count()} cores, "
            f"{RANKS} gloo ranks a run. Run: `.venv/bin/python benchmarks/hangs.py`\n\n"
            f"{text}\n\n"
            "| kind | started by | rank that hangs | seconds | bound | verdict |\n"
            "| --- | --- | --- | --- | --- | --- |\n"
            f"{rows}\n"
        )


if __name__ == "__main__":
    main()
