"""Runs cells side by side on one cluster, and holds what is told against what
happened."""

import shutil
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from corral.wire import api
from tests.patience import PATIENCE_SECONDS
from tests.scenarios.house import House, until
from tests.scenarios.injured.scene import PROGRAMS, Cell, Scene, lives

ONCE = {"infra": 0, "user": 0}
TOLD_WITHIN_SECONDS = 5.0
CLOSED_SECONDS = 10.0  # whoever waits longer for its nodes finds them closed


@dataclass(slots=True)
class Outcome:
    """How a cell was read. `seconds`: from the end of the attempt's last process, or of
    the attempt where nobody could see that, until cause and culprit could be read."""

    cell: Cell
    attempt: api.AttemptView | None = None
    seconds: float = 0.0
    wanted_culprit: tuple[str, ...] = ()
    trouble: str = ""
    is_unreachable: bool = False

    @property
    def is_class(self) -> bool:
        return self.attempt is not None and self.attempt.failure in self.cell.kinds

    @property
    def is_culprit(self) -> bool:
        return self.attempt is not None and all(
            word in self.attempt.culprit for word in self.wanted_culprit
        )

    @property
    def is_payer(self) -> bool:
        return self.attempt is not None and self.attempt.cause in self.cell.paid

    @property
    def is_right(self) -> bool:
        return self.is_class and self.is_culprit and self.is_payer

    def __str__(self) -> str:
        one = self.attempt
        told = f"{one.failure}, {one.culprit!r}, {one.cause}" if one else self.trouble
        wanted = f"{'|'.join(sorted(self.cell.kinds))}, {self.wanted_culprit}, "
        wanted += "|".join(sorted(self.cell.paid))
        more = f": {one.evidence} {one.quote!r}" if one else ""
        return f"{'ok ' if self.is_right else 'BAD'} {self.cell.name}: {told}; {wanted}{more}"


@dataclass(slots=True)
class _Run:
    cell: Cell
    scene: Scene
    outcome: Outcome
    hurt: threading.Thread | None = None
    pids: list[int] = field(default_factory=list)
    gone_at: float | None = None
    mended: bool = False  # its nodes, which an earlier cell may have had closed
    began: float = field(default_factory=time.time)

    @property
    def patience(self) -> float:
        return PATIENCE_SECONDS * (3 if self.cell.is_heavy else 1)


def measure(
    here: House,
    cells: Sequence[Cell],
    *,
    at_once: int = 16,
    nodes: Sequence[str] = ("n1", "n2"),
    tell: Callable[[Outcome], object] = lambda _: None,
) -> list[Outcome]:
    """Run them all; in the order of the cells. `tell` is told each as soon as it is
    over."""
    folder = here.shared / "cells"
    shutil.copytree(PROGRAMS, here.shared / "programs", dirs_exist_ok=True)
    for file in (here.shared / "programs").glob("*.py.txt"):
        file.rename(file.with_suffix(""))
    for node in here.nodes():  # whose sensors have been read once
        until(lambda node=node: here.node(node).sample, f"{node} senses")  # type: ignore[misc]
    waiting, live, all_runs = list(cells), list[_Run](), list[_Run]()
    with here.client() as client:
        while waiting or live:
            while (
                waiting and len(live) + 2 * sum(r.cell.is_heavy for r in live) < at_once
            ):
                cell = waiting.pop(0)
                scene = Scene(here, cell.name, folder / cell.name)
                run = _Run(cell, scene, Outcome(cell))
                _begin(run, nodes)
                live.append(run)
                all_runs.append(run)
            over = {
                job.id
                for job in client.jobs(everything=True, limit=10_000)
                if _is_over(job)
            }
            for run in list(live):
                _mend_nodes(run, live)
                _advance(run, over)
                if run.outcome.attempt is not None or run.outcome.trouble:
                    live.remove(run)
                    tell(run.outcome)
            time.sleep(0.1)
    for run in all_runs:
        run.scene.close()
    return [run.outcome for run in all_runs]


def _is_over(job: api.JobView) -> bool:
    return job.state in ("DONE", "FAILED", "CANCELLED")


def _begin(run: _Run, nodes: Sequence[str]) -> None:
    cell, scene = run.cell, run.scene
    scene.folder.mkdir(parents=True)
    on = list(cell.on) or list(nodes)
    cpus = 0.5 if cell.is_heavy else 0.1
    spec: dict[str, Any] = {"nodes": cell.ranks, "grace": "1s", "retry": ONCE}
    spec["constraints"] = {"node": on}
    spec |= cell.spec
    spec["resources"] = {"gpu": 1, "cpu": cpus} | spec.get("resources", {})
    env = {"CELL": str(scene.folder), "PROGRAMS": str(scene.house.shared / "programs")}
    spec["env"] = env | spec.get("env", {})
    if cell.before is not None:
        cell.before(scene)
    scene.job = scene.house.submit(cell.name, cell.run, **spec)


def _mend_nodes(run: _Run, live: Sequence[_Run]) -> None:
    """Of who waits for nodes of its own, which none is hurt on now: they are said to be
    mended."""
    on = set(run.cell.on)
    waits = run.hurt is None and time.time() - run.began > CLOSED_SECONDS
    if (
        not waits
        or run.mended
        or any(one.hurt and on & set(one.cell.on) for one in live)
    ):
        return
    run.mended = True
    if on:
        run.scene.house.ok("node", "clear", *sorted(on), "-y")


def _advance(run: _Run, over: set[str]) -> None:
    scene, now = run.scene, time.time()
    if run.hurt is None and scene.job not in over:
        if len(list(scene.folder.glob("ready-*"))) >= run.cell.ranks:
            run.pids = scene.pids()
            run.hurt = threading.Thread(target=_hurt, args=(run,), daemon=True)
            run.hurt.start()
        elif now - run.began > run.patience:
            run.outcome.trouble = (
                f"it was never at work: {scene.house.job(scene.job).reason}"
            )
            scene.house.corral("stop", scene.job, "-y")
        return
    if run.gone_at is None and run.pids and not any(lives(pid) for pid in run.pids):
        run.gone_at = now
    if scene.job in over:
        if run.hurt is not None:
            run.hurt.join(30)
        detail = scene.house.job(scene.job)
        attempt = detail.attempts[0]
        run.outcome.attempt = attempt
        run.outcome.wanted_culprit = tuple(
            _named(word, attempt) for word in run.cell.culprit
        )
        ended = attempt.ended_at or now
        run.outcome.seconds = max(0.0, now - (run.gone_at or ended))
        if run.hurt is None:
            run.outcome.trouble = "it ended before it was hurt"
            run.outcome.attempt = None
        scene.close()
    elif now - run.began > run.patience:
        run.outcome.trouble = run.outcome.trouble or "it never ended"
        scene.house.corral("stop", scene.job, "-y")
        scene.close()


def _hurt(run: _Run) -> None:
    try:
        run.cell.hurt(run.scene)
    except Exception as trouble:  # the cell is wrong, not what it tests
        run.outcome.trouble = f"the injector failed: {trouble!r}"
        with suppress(Exception):
            run.outcome.trouble += str(getattr(trouble, "stderr", b"") or b"")


def _named(word: str, attempt: api.AttemptView) -> str:
    names = {f"node{rank}": seat.node for rank, seat in enumerate(attempt.seats)}
    gpus = {
        f"gpu{rank}": next(iter(seat.gpus), -1)
        for rank, seat in enumerate(attempt.seats)
    }
    return word.format(**names, **gpus)
