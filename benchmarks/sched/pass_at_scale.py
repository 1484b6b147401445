"""One look of the live scheduler at a large cluster, where jobs have ended and 10,000 wait.

Run: .venv/bin/python benchmarks/sched/pass_at_scale.py [--nodes 12500] [--ticks 40]

Nodes of 8 GPUs, all held by jobs of whole nodes; before each tick a few of these have ended. The
design asks for p99 <= 50 ms at 100,000 GPUs, and <= 5 ms at 1,000 nodes. Told is the CPU time of
the whole tick of the head (`reconcile`) and of `schedule.decide` in it. No store, no agents.
"""

import argparse
import gc
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from random import Random
from time import process_time
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[2]))

import corral.reconcile.placement as place
from corral.domain.ids import JobId
from corral.domain.job import JobSpec
from corral.domain.node import Node
from corral.domain.observed_state import Phase
from corral.domain.requests import StoredRequest, Submit
from corral.reconcile import Now, PassOutcome, reconcile
from corral.reconcile.cache.pass_cache import Memo
from tests.worlds import ALICE, Cluster, Exit, Order, gang, node

GPUS, SHAPES, ENDED = 8, 200, 5


class Head(Cluster):
    """As control keeps it: what was made of the queue stays, and only what changed is seen."""

    def __init__(self, *nodes: Node) -> None:
        self.memo, self.touched, self.spent = Memo(), frozenset[JobId](), list[float]()
        super().__init__(*nodes)

    def decide(self, requests: Sequence[StoredRequest], now: Now) -> PassOutcome:
        began = process_time()
        try:
            return reconcile(
                self.world,
                self.facts,
                requests,
                now,
                touched=self.touched,
                memo=self.memo,
            )
        finally:
            self.spent.append(process_time() - began)


def submit(cluster: Cluster, specs: list[JobSpec]) -> None:
    sequence = Order(cluster.world.granted + 1)
    asked = Submit(specs=tuple(specs), key=str(sequence))
    cluster.tick(
        [StoredRequest(sequence=sequence, by=ALICE, at=cluster.wall, asked=asked)]
    )


def shapes(chance: Random) -> list[tuple[int, int]]:
    """Nodes and GPUs a node: half of one node, half gangs of whole ones."""
    small = [(1, chance.randint(1, GPUS)) for _ in range(SHAPES // 2)]
    return small + [
        (chance.randint(2, 2 + SHAPES // 2), GPUS) for _ in range(SHAPES // 2)
    ]


@contextmanager
def timed(spent: list[float]) -> Iterator[None]:
    """Adds the CPU seconds of each `schedule.decide` meanwhile."""
    decide = place.decide

    def measured(*args: Any, **kwargs: Any) -> Any:
        began = process_time()
        try:
            return decide(*args, **kwargs)
        finally:
            spent.append(process_time() - began)

    place.decide = measured
    try:
        yield
    finally:
        place.decide = decide


def tell(what: str, seconds: list[float]) -> None:
    ranked = sorted(seconds)
    p50, p99 = ranked[len(ranked) // 2], ranked[int(0.99 * (len(ranked) - 1))]
    millis = [f"{name} {seconds * 1000:.1f} ms" for name, seconds in
              (("p50", p50), ("p99", p99), ("longest", ranked[-1]))]  # fmt: skip
    print(f"{what}: {', '.join(millis)}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nodes", type=int, default=12_500)
    parser.add_argument("--waiting", type=int, default=10_000)
    parser.add_argument("--ticks", type=int, default=40)
    asked = parser.parse_args()
    chance = Random(1)
    cluster = Head(*[node(f"n{n}", gpus=GPUS) for n in range(asked.nodes)])
    submit(cluster, [gang(f"r{n}", gpus=GPUS) for n in range(asked.nodes)])
    running = list(cluster.world.jobs)
    for id in running:
        cluster.say(id, Phase.UP)
    cluster.touched = frozenset(running)
    cluster.tick()
    forms = shapes(chance)
    submit(cluster, [gang(f"w{n}", nodes=nodes, gpus=gpus) for n in range(asked.waiting)
                     for nodes, gpus in [chance.choice(forms)]])  # fmt: skip
    cluster.tick(seconds=600.0)
    gc.collect()
    gc.freeze()
    cluster.spent.clear()
    decided: list[float] = []
    with timed(decided):
        for _ in range(asked.ticks):
            ended = [running.pop() for _ in range(ENDED)]
            for id in ended:
                cluster.say(id, Phase.ENDED, exits=((0, Exit(code=0)),))
            cluster.touched = frozenset(ended)
            cluster.tick()
    print(f"{asked.nodes} nodes, {asked.waiting} wait in {SHAPES} shapes")
    print(f"{ENDED} end before each tick")
    tell("the tick", cluster.spent)
    tell("schedule.decide in it", decided)


if __name__ == "__main__":
    main()
