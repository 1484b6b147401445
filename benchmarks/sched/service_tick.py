"""What the order by service costs a head: its table, and ticks over 1,000 GPUs that are all held.

Run: .venv/bin/python benchmarks/sched/service_tick.py [--nodes 125]

One queue. Its jobs of one GPU hold everything, save, and have run for two hours; 500 more have
just come. Each line is the CPU time of one tick: by age, by service while nobody has waited for
long enough to buy, and once they have. The table is of 5,000 ended jobs in 50 classes, and the time
is that of all their ranks. No store, no agents: only what is decided.
"""

import argparse
import sys
from pathlib import Path
from random import Random
from time import process_time

sys.path.insert(0, str(Path(__file__).parents[2]))

from corral.domain.ids import QueueName
from corral.domain.job import DEFAULT_QUEUE
from corral.domain.observed_state import Phase, Progress
from corral.domain.requests import SetQueues, StoredRequest, Submit
from corral.schedule.arrays.hazard import LEVELS, edges
from corral.schedule.prediction.runtime_model import MOST_ENDED, Class, Ended, Learned
from tests.worlds import ALICE, SAVING, Cluster, Order, gang, node

GPUS, WAITING, CLASSES, AGE_SECONDS = 8, 500, 50, 7200.0


def learned() -> Learned:
    chance = Random(1)
    queues = [DEFAULT_QUEUE, *(QueueName(f"q{n}") for n in range(1, CLASSES))]
    return Learned(
        Ended(
            job_class=Class(queues[n % CLASSES], 1000),
            user=ALICE,
            stem="train",
            seconds=chance.lognormvariate(6.0, 2.2),
        )
        for n in range(MOST_ENDED)
    )


def tell_table() -> None:
    table, began = learned(), process_time()
    for n in range(CLASSES):
        one = Class(QueueName(f"q{n}") if n else DEFAULT_QUEUE, 1000)
        for attained in list(edges())[:LEVELS]:
            table.rank_seconds(one, attained)
    took = process_time() - began
    print(f"the ranks of {CLASSES} classes at {LEVELS} levels: {took * 1000:.0f} ms")


def submit(cluster: Cluster, count: int) -> None:
    specs = tuple(gang(f"j{n}", checkpoint=SAVING) for n in range(count))
    sequence = Order(cluster.world.granted + 1)
    asked = Submit(specs=specs, key=str(sequence))
    cluster.tick(
        [StoredRequest(sequence=sequence, by=ALICE, at=cluster.wall, asked=asked)]
    )


def tell(cluster: Cluster, what: str, seconds: float = 0.5) -> None:
    began = process_time()
    cluster.tick(seconds=seconds)
    took = process_time() - began
    print(
        f"{what}: {took * 1000:.0f} ms, {len(cluster.world.reservations)} reservations"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nodes", type=int, default=125)
    nodes = parser.parse_args().nodes
    tell_table()
    cluster = Cluster(*[node(f"n{n}", gpus=GPUS) for n in range(nodes)])
    cluster.request(SetQueues(queues=(), whole=True, min_runtime_seconds=60.0))
    submit(cluster, nodes * GPUS)
    for id in list(cluster.world.jobs):
        cluster.say(id, Phase.UP, progress=Progress(step=1))
    for seconds in (1.0, 1.0, AGE_SECONDS):
        cluster.tick(seconds=seconds)
    submit(cluster, WAITING)
    tell(cluster, f"{WAITING} wait, by age")
    cluster.learned = learned()
    tell(cluster, f"{WAITING} wait, by service, and none has paid")
    tell(cluster, f"{WAITING} wait, and may buy", seconds=120.0)
    tell(cluster, "the next tick")


if __name__ == "__main__":
    main()
