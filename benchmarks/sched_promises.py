"""What a pass costs in which a gang is promised a start: full clusters, every job with a limit.

python benchmarks/sched_promises.py
"""

import time
from random import Random
from statistics import median

from corral.domain.ids import BootId, JobId, NodeId, QueueName, UserName
from corral.domain.node import Liveness, Node
from corral.domain.queue import Queue
from corral.domain.queue_policy import Policy
from corral.domain.queue_tree import whole_tree
from corral.domain.resources import Gpu, Inventory, Resources, Shape
from corral.schedule import NodeRoom, NodeTypes, SeatEnd, Waiting, decide
from corral.schedule.quota.balances import Standing
from corral.schedule.quota.limits import holding_of

EASY, ALL, ANN = QueueName("easy"), QueueName("all"), UserName("ann")
PASSES = 5


def node(row: int) -> Node:
    gpus = (
        Gpu(index=i, uuid=f"{row}-{i}", type="h100", memory_bytes=0) for i in range(8)
    )
    inventory = Inventory(
        gpus=tuple(gpus),
        cpu_millis=64_000,
        memory_bytes=2**40,
        ports=tuple(range(20_000, 20_064)),
    )
    id = NodeId(f"n{row:04d}")
    return Node(id=id, boot=BootId("1"), inventory=inventory, liveness=Liveness.ALIVE)


def gang(at: int, queue: QueueName, nodes: int, gpus: int, seconds: float) -> Waiting:
    shape = Shape(nodes=nodes, resources=Resources(gpu_millis=gpus * 1000))
    return Waiting(
        job=JobId(f"j{at}"), shapes=(shape,), priority=0, order=(at, 0), queue=queue, user=ANN,
        holds_seconds=seconds,
    )  # fmt: skip


def one_pass(
    nodes: list[Node], waiting: list[Waiting], seed: int
) -> tuple[float, int, int]:
    """Milliseconds; how many are promised a start; and how many are placed beside that."""
    chance, rooms, ends = (
        Random(seed),
        [NodeRoom(one) for one in nodes],
        list[SeatEnd](),
    )
    types = {one.id: ["h100"] * 8 for one in nodes}
    for room in rooms:
        while room.whole > (1 if chance.random() < 0.2 else 0):
            gpus = min(room.whole, chance.choice([1, 1, 2, 4, 8]))
            seat = room.seat(Resources(gpu_millis=gpus * 1000))
            assert seat is not None
            room.take(seat)
            holding = holding_of(EASY, ANN, [seat], types)
            job, until = JobId(f"r{len(ends)}"), chance.uniform(60.0, 86_400.0)
            ends.append(SeatEnd(job=job, seats=(seat,), until=until, holding=holding))
    tree = whole_tree(
        [
            Queue(name=EASY, policy=Policy.BACKFILL),
            Queue(name=ALL, policy=Policy.CONSERVATIVE),
        ]
    )
    fleet = NodeTypes(nodes)
    standing = Standing(tree, capacity=fleet.capacity, kinds=["h100"])
    began = time.perf_counter()
    decision = decide(rooms, waiting, fleet=fleet, standing=standing, ends=lambda: ends)
    millis = 1000 * (time.perf_counter() - began)
    return millis, len(decision.promised), len(decision.placed)


def main() -> None:
    print("| nodes | queue | waiting | promised | placed | ms a pass, median (most) |")
    print("| --- | --- | --- | --- | --- | --- |")
    for count in (100, 1000):
        nodes = [node(row) for row in range(count)]
        for queue in (QueueName("default"), EASY, ALL):
            for wide in (4, 64):
                waiting = [gang(at, queue, wide, 8, 7200.0 + at) for at in range(20)]
                waiting += [gang(at, queue, 1, 1, 60.0 * at) for at in range(20, 220)]
                some = [one_pass(nodes, waiting, seed) for seed in range(PASSES)]
                times = [millis for millis, _, _ in some]
                print(
                    f"| {count} | {queue}, {wide} nodes wide | {len(waiting)} | {some[0][1]} | "
                    f"{some[0][2]} | {median(times):.0f} ({max(times):.0f}) |"
                )


if __name__ == "__main__":
    main()
