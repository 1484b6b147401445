"""What preemption costs a tick of the head: reconcile over 1,000 GPUs that are all held.

Run: .venv/bin/python benchmarks/sched/preempt_tick.py [--nodes 125]

Ten queues own a tenth each; one of them holds everything, by jobs of one GPU that save. Then 500
jobs wait without a right to anything, and 500 more that have one, by their priority. Each line is
the CPU time of one tick. No store, no agents: only what is decided.
"""

import argparse
import sys
from pathlib import Path
from time import process_time

sys.path.insert(0, str(Path(__file__).parents[2]))

from corral.domain.ids import QueueName
from corral.domain.queue import ANY_TYPE, Queue
from corral.domain.requests import SetQueues, StoredRequest, Submit
from tests.worlds import ALICE, SAVING, Cluster, Order, gang, node

QUEUES, GPUS, WAITING = 10, 8, 500


def submit(cluster: Cluster, count: int, *, priority: int = 0) -> None:
    queue = QueueName("q0")
    specs = tuple(
        gang(f"j{n}", queue=queue, priority=priority, checkpoint=SAVING)
        for n in range(count)
    )
    sequence = Order(cluster.world.granted + 1)
    asked = Submit(specs=specs, key=str(sequence))
    cluster.tick(
        [StoredRequest(sequence=sequence, by=ALICE, at=cluster.wall, asked=asked)]
    )


def tell(cluster: Cluster, what: str) -> None:
    began = process_time()
    cluster.tick()
    took = process_time() - began
    print(
        f"{what}: {took * 1000:.0f} ms, {len(cluster.world.reservations)} reservations"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nodes", type=int, default=125)
    nodes = parser.parse_args().nodes
    cluster = Cluster(*[node(f"n{n}", gpus=GPUS) for n in range(nodes)])
    own = ((ANY_TYPE, nodes * GPUS * 1000 // QUEUES),)
    queues = tuple(Queue(name=QueueName(f"q{n}"), nominal=own) for n in range(QUEUES))
    cluster.request(SetQueues(queues=queues, whole=True, min_runtime_seconds=1e9))
    submit(cluster, nodes * GPUS)
    tell(cluster, "nobody waits")
    submit(cluster, WAITING)
    tell(cluster, f"{WAITING} wait, none with a right")
    submit(cluster, WAITING, priority=100)
    tell(cluster, f"{2 * WAITING} wait, {WAITING} with a right")
    tell(cluster, "the next tick")


if __name__ == "__main__":
    main()
