"""From a submit to the job's process running: Corral on Slurm beside plain sbatch, turn by turn.

Run: .venv/bin/python benchmarks/engines/slurm_latency.py [--jobs 30] [--write]

One real Slurm, tuned as benchmarks/peers has it. In each turn one job by sbatch and one by Corral,
in an order and after a pause that are drawn (seeded), each on a Slurm that is otherwise idle; and
one more by Corral with a secret, whose ranks wait for their agent (0039). All are counted from
before the call to the first act of the job's shell. To reach (issue 4): Corral's
p50 at most 150 ms over sbatch's.
"""

import argparse
import os
import random
import sys
import time
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from embedded import cluster, keep, peer, quantile, report

import corral

WARM: int = 2  # turns that warm up the path
IDLE_SECONDS: float = 120.0
OVER_MILLIS: int = 150


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jobs", type=int, default=30)
    parser.add_argument("--write", action="store_true")
    asked = parser.parse_args()
    slurm = peer()
    if slurm is None:
        return
    with slurm.slurm_cluster(nodes=4, gpus=8, settings=slurm.TUNED) as there:
        os.environ["SLURM_CONF"] = str(there.folder / "slurm.conf")
        with cluster("--engine", "slurm", "--set", "pretend=yes") as (_, client):
            took = _turns(there, client, slurm.STAMP, asked.jobs)
    rows = []
    for share in (0.1, 0.5, 0.9):
        plain, ours, waits = (quantile(took[who], share) * 1e3 for who in took)
        bound = f"{OVER_MILLIS} ms" if share == 0.5 else ""
        rows += [
            (f"sbatch, p{share * 100:.0f}", f"{plain:.0f} ms", ""),
            (f"Corral on the same Slurm, p{share * 100:.0f}", f"{ours:.0f} ms", ""),
            (f"over it, p{share * 100:.0f}", f"{ours - plain:.0f} ms", bound),
            (
                f"the same where ranks wait for their agent, p{share * 100:.0f}",
                f"{waits - plain:.0f} ms",
                "",
            ),
        ]
    title = f"Submit to running on Slurm, {asked.jobs} jobs each"
    keep("engine-slurm-latency", report(title, rows), asked.write)


def _turns(
    there, client: corral.Client, stamp: str, jobs: int
) -> dict[str, list[float]]:  # type: ignore[no-untyped-def]
    """Seconds from the call to the process, by whom it was handed in."""
    script = there.folder / "stamp"
    script.write_text(stamp)
    notes = there.folder / "notes"
    notes.mkdir()

    def by_sbatch(note: Path) -> None:
        there.sbatch(script, str(note))

    def by_corral(note: Path, **more: object) -> None:
        spec = {"name": note.name, "run": f"echo $EPOCHREALTIME > {note}"}
        client.submit({**spec, "resources": {"gpu": 1}, **more})

    client.set_secret("WORD", "hidden")
    ways: dict[str, Callable[[Path], None]] = {
        "sbatch": by_sbatch,
        "corral": by_corral,
        "corral, by its agent": lambda note: by_corral(note, secrets=["WORD"]),
    }
    took: dict[str, list[float]] = {name: [] for name in ways}
    chance = random.Random(1)
    for turn in range(jobs + WARM):
        for name in chance.sample(sorted(ways), len(ways)):
            time.sleep(chance.random())
            note = notes / f"way{list(ways).index(name)}-{turn}"
            began = time.time()
            ways[name](note)
            _until(lambda note=note: note.exists() and note.read_text().endswith("\n"))
            if turn >= WARM:
                took[name].append(float(note.read_text()) - began)
            _until(lambda: not there.unfinished())
    return took


def _until(true: Callable[[], bool]) -> None:
    give_up_at = time.monotonic() + IDLE_SECONDS
    while not true():
        if time.monotonic() > give_up_at:
            raise TimeoutError("it did not come")
        time.sleep(0.02)


if __name__ == "__main__":
    main()
