"""Random deaths on a real Ray while jobs come and go: is any job run twice at once, or lost?

Run: PYTHONPATH=benchmarks:. .venv/bin/python benchmarks/engines/ray_history.py
[--seconds 60] [--runs 3] [--seed 1] [--write]

Two nodes of Ray beside that of Ray's head. Each 1 to 6 s one of these is killed: the head, an agent
actor, an agent, all of Ray on a node, all of a node. Jobs of one and two ranks are submitted all
the time. Judged from what the ranks themselves wrote (tests/engines/ray/history.py). To reach: none
doubled, none lost.
"""

import argparse
import sys
from collections import Counter

from embedded import keep, report

from tests.engines.ray.history import NODES, History, Told, breaches
from tests.ray_cluster import ray_house


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--write", action="store_true")
    asked = parser.parse_args()
    told: list[Told] = []
    faults: Counter[str] = Counter()
    for seed in range(asked.seed, asked.seed + asked.runs):
        with ray_house("--set", "num_gpus=0", nodes=NODES) as ray:
            history = History(ray, seed)
            found = history.run(asked.seconds)
        faults += history.faults
        told += found
        if wrong := breaches(found):
            sys.exit(f"seed {seed}, {history.faults}:\n" + "\n".join(wrong))
    attempts = sum(one.job.attempt for one in told)
    again = sum(one.job.attempt > 1 for one in told)
    killed = ", ".join(f"{name} {often}" for name, often in sorted(faults.items()))
    rows = [
        ("killed", f"{faults.total()}: {killed}", ""),
        ("jobs acknowledged, attempts", f"{len(told)}, {attempts}", ""),
        ("jobs that began again after a fault", f"{again}", ""),
        ("attempts at once, ranks begun twice, untrue ends", "0", "0"),
        ("jobs lost", "0", "0"),
    ]
    title = f"Random deaths on Ray, {asked.runs} runs of {asked.seconds:g} s"
    keep("engines-ray-history", report(title, rows), asked.write)


if __name__ == "__main__":
    main()
