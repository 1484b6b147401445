"""Nodes on other machines, as network namespaces: how soon they join, start a job, and are missed.

Run as root: .venv/bin/python benchmarks/machines.py [--rounds 5] [--write]

Join and leave: the whole command, with the head's first beat of it. Start: from the submission's
answer until the rank has written a file. Cut: from the moment that nothing passes between head and
machine until the head tells it silent, and until a job that saves runs on the other machine.
To reach (design, section 6; issue 4): silent 10 s, replaced 15 s.
"""

import argparse
import sys
import time
from pathlib import Path

from embedded import keep, report, spread

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from tests.scenarios.house import until
from tests.scenarios.machines import Machines, machines

Seconds = dict[str, list[float]]


def since(began: float) -> float:
    return time.monotonic() - began


def round_of(found: Machines, seconds: Seconds) -> None:
    folder = found.head.root.parent
    for name in ("w1", "w2"):
        line, began = found.line(), time.monotonic()
        found[name].join(
            line, "--gpus", "1", "--pretend", "--shared", str(folder / "saves")
        )
        seconds["join"].append(since(began))
    file = folder / f"started-{time.monotonic_ns()}"
    began = time.monotonic()
    job = found.submit("starts", f"touch {file}")
    until(file.exists, "it has started")
    seconds["start"].append(since(began))
    found.until_state(job, "DONE")
    cut(found, seconds)
    for name in ("w1", "w2"):
        began = time.monotonic()
        found[name].ok("leave", "-y")
        seconds["leave"].append(since(began))


def cut(found: Machines, seconds: Seconds) -> None:
    saves = {"path": str(found.head.root.parent / "saves")}
    job = found.submit("moves", "sleep 3600", checkpoint=saves)
    found.until_state(job, "RUNNING")
    (where,) = found.job(job).nodes
    began = time.monotonic()
    with found.hosts.parted("head", where):
        found.until_node(where, "silent")
        seconds["silent"].append(since(began))
        until(
            lambda: (
                found.job(job).nodes != [where] and found.job(job).state == "RUNNING"
            ),
            "it runs elsewhere",
        )
        seconds["replaced"].append(since(began))
    found.until_node(where, "alive")
    found.stop(job)
    until(
        lambda: not any(one.jobs for one in found.call(lambda c: c.nodes())),
        "nothing is held",
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--write", action="store_true")
    asked = parser.parse_args()
    seconds: Seconds = {
        name: [] for name in ("join", "start", "silent", "replaced", "leave")
    }
    with machines("w1", "w2") as found:
        (found.head.root.parent / "saves").mkdir()
        for _ in range(asked.rounds):
            round_of(found, seconds)
    rows = [
        ("corral join, until the head has heard it", spread(seconds["join"]), "-"),
        ("a job's rank runs on a machine that joined", spread(seconds["start"]), "-"),
        ("a machine that is cut off is told silent", spread(seconds["silent"]), "10 s"),
        ("its job, which saves, runs elsewhere", spread(seconds["replaced"]), "15 s"),
        ("corral leave", spread(seconds["leave"]), "-"),
    ]
    notes = (
        "Network namespaces of one machine as hosts, over TLS. Median, least and most."
    )
    keep(
        "machines",
        report(f"Nodes on other machines, {asked.rounds} rounds", rows, notes),
        asked.write,
    )


if __name__ == "__main__":
    main()
