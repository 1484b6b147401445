"""How soon a gang trains again after kill -9 of one of its ranks.

Run: .venv/bin/python benchmarks/restart_in_place.py [--kills 10] [--write]

Eight gloo ranks of an unchanged PyTorch program train on two pretend nodes of one
machine. Each kill hits another rank, once all ranks have made a step. The peer in the
same run is torchrun with --max-restarts, on the same machine with the same program. Two
times count from the kill: until the first new process of a rank runs, and until all
ranks have made a step again.
"""

import argparse
import json
import os
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from embedded import cluster, keep, quantile, report, spread

import corral

PROGRAM = Path(__file__).resolve().parent / "restart_programs" / "train.py"
RANKS, NODES = 8, 2
# Of steps before each kill: a warm interpreter is ready after about ten. Each time it is
# a little longer, because a program that fails at the same step again and again is broken.
STEADY_SECONDS, MORE_SECONDS = 14.0, 0.7
BEGIN_SECONDS, BACK_SECONDS = 300.0, 180.0
LOOK_SECONDS = 0.01
TO_FIRST_RANK_SECONDS, TO_STEPS_SECONDS, TO_RATIO = 0.5, 2.5, 0.25


@dataclass(frozen=True, slots=True, kw_only=True)
class Restart:
    """Seconds from a kill until the first new rank ran, and until all made a step."""

    first_rank: float
    all_step: float


class Ranks:
    """The files in which the ranks of a run write what they do."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def runs(self) -> dict[int, dict[str, float]]:
        """Return what each rank wrote last, by rank."""
        runs: dict[int, dict[str, float]] = {}
        for rank in range(RANKS):
            try:
                runs[rank] = json.loads((self.folder / f"rank-{rank}").read_text())
            except FileNotFoundError:
                continue
        return runs

    def all_stepped(self, since: float) -> dict[int, dict[str, float]] | None:
        """Return the runs once every process that began after `since` has made a
        step."""
        runs = self.runs()
        is_back = len(runs) == RANKS and all(
            run["began"] > since and run["stepped"] for run in runs.values()
        )
        return runs if is_back else None


def wait_for(
    look: Callable[[], dict[int, dict[str, float]] | None], seconds: float
) -> dict[int, dict[str, float]]:
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        if (runs := look()) is not None:
            return runs
        time.sleep(LOOK_SECONDS)
    raise TimeoutError(f"not all ranks made a step within {seconds:.0f} s")


def kill_one_by_one(ranks: Ranks, kills: int) -> Iterator[Restart]:
    """Kill one rank after the other, and yield how long the gang took to train
    again."""
    runs = wait_for(lambda: ranks.all_stepped(0.0), BEGIN_SECONDS)
    for number in range(kills):
        time.sleep(STEADY_SECONDS + number * MORE_SECONDS)
        victim = runs[(number * 3 + 1) % RANKS]
        killed_at = time.time()
        os.kill(int(victim["pid"]), signal.SIGKILL)
        runs = wait_for(lambda since=killed_at: ranks.all_stepped(since), BACK_SECONDS)
        yield Restart(
            first_rank=min(run["began"] for run in runs.values()) - killed_at,
            all_step=max(run["stepped"] for run in runs.values()) - killed_at,
        )


def of_corral(kills: int) -> list[Restart]:
    gpus = RANKS // NODES
    up = ("--nodes", str(NODES), "--gpus", str(gpus), "--pretend")
    with cluster(*up) as (root, client):
        folder = root / "shared" / "restart"
        folder.mkdir(parents=True)
        spec = {
            "name": "restart",
            "run": f"exec {sys.executable} {PROGRAM}",
            "nodes": NODES,
            "resources": {"gpu": gpus},
            "per": "gpu",
            "env": {"RESTART_FOLDER": str(folder), "OMP_NUM_THREADS": "1"},
            "retry": {"user": kills + 5},
        }
        job = client.submit(spec)[0].id
        restarts = list(kill_one_by_one(Ranks(folder), kills))
        _check_in_place(client, job, kills)
        client.cancel(job)
        return restarts


def _check_in_place(client: "corral.Client", job: str, kills: int) -> None:
    """Check that each restart was one in place."""
    events = [
        event for event in client.events(job) if event.kind == "restarted_in_place"
    ]
    if len(events) < kills:
        raise AssertionError(f"{len(events)} of {kills} restarts were in place")


@contextmanager
def torchrun(folder: Path, kills: int) -> Iterator[None]:
    """Run the program under torchrun meanwhile. Its store is not shared with the ranks,
    because with the shared one no restart comes to an end."""
    environment = {
        **os.environ,
        "RESTART_FOLDER": str(folder),
        "OMP_NUM_THREADS": "1",
        "TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1",
    }
    words = [
        *(sys.executable, "-m", "torch.distributed.run", "--standalone"),
        *("--nproc-per-node", str(RANKS), "--max-restarts", str(kills)),
    ]
    process = subprocess.Popen(
        [*words, str(PROGRAM)],
        env=environment,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        yield
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(60)


def of_torchrun(kills: int) -> list[Restart]:
    """Measure torchrun with at most 3 restarts a run, as it is often used."""
    restarts: list[Restart] = []
    while len(restarts) < kills:
        folder = Path(tempfile.mkdtemp(prefix="torchrun-restart-"))
        try:
            count = min(3, kills - len(restarts))
            with torchrun(folder, 3):
                restarts += kill_one_by_one(Ranks(folder), count)
        finally:
            shutil.rmtree(folder, ignore_errors=True)
    return restarts


def table(ours: Sequence[Restart], peers: Sequence[Restart]) -> str:
    first = [restart.first_rank for restart in ours]
    steps = [restart.all_step for restart in ours]
    rows = [
        ("kills", f"{len(ours)}; torchrun {len(peers)}", "10"),
        (
            "kill to the first new rank, median",
            spread(first),
            f"{TO_FIRST_RANK_SECONDS} s",
        ),
        ("kill until all ranks step, median", spread(steps), f"{TO_STEPS_SECONDS} s"),
        ("the same, p99", f"{quantile(steps, 0.99):.3g} s", "4 s"),
    ]
    if peers:
        peer_first = [restart.first_rank for restart in peers]
        peer_steps = [restart.all_step for restart in peers]
        ratio = statistics.median(steps) / statistics.median(peer_steps)
        first_ratio = statistics.median(first) / statistics.median(peer_first)
        rows += [
            ("torchrun: kill to the first new rank", spread(peer_first), "-"),
            ("torchrun: kill until all ranks step", spread(peer_steps), "-"),
            ("first new rank, ratio to torchrun", f"{first_ratio:.2f} x", "-"),
            ("all ranks step, ratio to torchrun", f"{ratio:.2f} x", f"{TO_RATIO} x"),
        ]
    page: str = report("Restart after kill -9 of one of 8 ranks", rows)
    return page


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=10)
    parser.add_argument("--peer-kills", type=int, default=6)
    parser.add_argument("--write", action="store_true")
    arguments = parser.parse_args()
    ours = of_corral(arguments.kills)
    peers = of_torchrun(arguments.peer_kills)
    keep("restart_in_place", table(ours, peers), arguments.write)


if __name__ == "__main__":
    main()
