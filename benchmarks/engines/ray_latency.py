"""From a submit to the rank running, through Corral on Ray and by Ray itself, side by side.

Run: PYTHONPATH=benchmarks:. .venv/bin/python benchmarks/engines/ray_latency.py
[--jobs 50] [--write]

One job at a time on a Ray of one node that is otherwise idle. Corral: from sending the submit until
the rank, a shell, notes its clock. Ray: from asking for an actor (no GPU, no CPU) until its
constructor notes its clock, from a program that is connected already; `ray job submit` needs Ray's
dashboard, and starts such a program first. They take turns. To reach (issue 4): Corral's p50 is at
most 150 ms more than Ray's.
"""

import argparse
import os
import subprocess
import sys
import time

from embedded import keep, quantile, report

from corral.engines.ray import start_options
from tests.ray_cluster import RayHouse, ray_house

ACTORS = """
import sys, time, ray
ray.init(address=sys.argv[1], log_to_driver=False)
class Noting:
    def __init__(self):
        self.at = time.time()
    def noted(self):
        return self.at
made = ray.remote(num_cpus=0)(Noting)
for line in sys.stdin:
    began = time.time()
    actor = made.remote()
    print(ray.get(actor.noted.remote()) - began, flush=True)
    ray.kill(actor)
"""


class Actors:
    """A program of Ray that starts one actor a line."""

    def __init__(self, ray: RayHouse) -> None:
        env = {
            **os.environ,
            **start_options.environment(str(ray.house.root / "ray" / "token")),
        }
        self.process = subprocess.Popen(
            [sys.executable, "-c", ACTORS, ray.address],
            env=env,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )

    def start_one(self) -> float:
        """Seconds."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write("\n")
        self.process.stdin.flush()
        return float(self.process.stdout.readline())


def through_corral(ray: RayHouse, number: int) -> float:
    """Seconds."""
    note = ray.house.root.parent / f"at-{number}"
    with ray.house.client() as client:
        began = time.time()
        job = client.submit(
            {"name": f"at-{number}", "run": f"echo $EPOCHREALTIME > {note}"}
        )[0]
        client.wait(job.id)
    return float(note.read_text()) - began


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jobs", type=int, default=50)
    parser.add_argument("--write", action="store_true")
    asked = parser.parse_args()
    ours: list[float] = []
    theirs: list[float] = []
    with ray_house() as ray:
        actors = Actors(ray)
        for number in range(asked.jobs + 3):
            pair = through_corral(ray, number), actors.start_one()
            if number >= 3:  # the first ones warm up the path
                ours.append(pair[0])
                theirs.append(pair[1])
        actors.process.communicate()
    more = quantile(ours, 0.5) - quantile(theirs, 0.5)
    rows = [
        ("through Corral on Ray, p50", f"{quantile(ours, 0.5) * 1e3:.0f} ms", ""),
        ("through Corral on Ray, p99", f"{quantile(ours, 0.99) * 1e3:.0f} ms", ""),
        ("an actor of Ray, p50", f"{quantile(theirs, 0.5) * 1e3:.0f} ms", ""),
        ("an actor of Ray, p99", f"{quantile(theirs, 0.99) * 1e3:.0f} ms", ""),
        ("what Corral adds, p50", f"{more * 1e3:.0f} ms", "150 ms"),
    ]
    text = report(f"Submit to rank running on Ray, {asked.jobs} jobs", rows)
    keep("engines-ray-latency", text, asked.write)


if __name__ == "__main__":
    main()
