"""B4: one placement at a time on a cluster of 99,000 GPUs that is 80 % full.

Run: .venv/bin/python benchmarks/sched/b4_single.py [--decisions 20000] [--copies 16] [--json]

The cluster is openb's, 16 times over (24,368 nodes, 99,392 GPUs), in racks of 16 nodes and pods of
32 racks. It is filled to 80 %, once by pods of the default trace, which leave hardly a node idle,
so that nearly all gangs are refused, and once by the mix of the decisions, most of it gangs. Each
decision is one job: 4 of 5 are pods of the trace, 1 of 5 is a gang of 8 to 1,024 GPUs (powers of
two, 8 GPUs a node); a third requests for a type; half of the gangs (a tenth of all) must lie in one
rack. After each, jobs drawn at random end until the cluster is 80 % full again. A decision's time
is that of learning from its arrival, finding its seats or none, and taking them; endings are not
counted. `wall` is what passed, `cpu` what the thread itself used: they differ where other work
shares the core. In the same run, on the same states: best fit over numpy columns, for the pods.
Without numba, as in the base install (with `--copies 1`): .venv/bin/python -c "import sys, runpy;
sys.modules['numba'] = None; runpy.run_path('b4_single.py', run_name='__main__')" from this folder.
To reach (issue 3): p50 <= 0.1 ms, p99 <= 5 ms, >= 5,000 decisions/s, <= 1 GB.
"""

import argparse
import json
import resource
import statistics
from dataclasses import dataclass
from pathlib import Path
from random import Random
from time import perf_counter, thread_time

import numpy as np
from openb import TRACES, machines, pods

from corral.schedule.arrays.cluster import (
    RACK,
    WHOLE,
    ClusterArrays,
    NodeColumns,
    cluster_of,
    give,
    share_millis,
)
from corral.schedule.arrays.compiled import IS_COMPILED
from corral.schedule.arrays.fit import PREFER, REQUIRE, ColumnRequest
from corral.schedule.arrays.fragmentation import Demand, arrive, new_demand
from corral.schedule.columns.placement import place, take_all

FULL = 0.8
RACK_NODES, POD_NODES = 16, 512


@dataclass(slots=True)
class World:
    cluster: ClusterArrays
    demand: Demand
    asks: list[ColumnRequest]
    gang_types: int
    held: list[tuple[ColumnRequest, list[tuple[int, int]]]]
    used: int = 0
    capacity: int = 0


def world_of(copies: int, traces: Path) -> World:
    nodes = machines(traces) * copies
    Random(0).shuffle(nodes)
    types = sorted({node.type for node in nodes if node.gpus})
    rows = [
        NodeColumns(
            gpus=node.gpus,
            cpu_millis=node.cpu_millis,
            memory_mib=node.memory_mib,
            gpu_type=types.index(node.type) if node.gpus else len(types),
            nvlink=at,
            rack=at // RACK_NODES,
            pod=at // POD_NODES,
        )
        for at, node in enumerate(nodes)
    ]
    cluster = cluster_of(rows, classes=1 + len(types))
    for number in range(1, 1 + len(types)):
        for at, row in enumerate(rows):
            cluster.eligible[number * len(rows) + at] = row.gpu_type == number - 1
    of_trace = pods("default", traces)
    asks = [
        ColumnRequest(
            gpus=p.millis // WHOLE,
            share=p.millis % WHOLE,
            cpu=p.cpu_millis,
            memory=p.memory_mib,
        )
        for p in of_trace
    ]
    made = World(cluster, new_demand(), asks, len(types), [])
    made.capacity = sum(node.gpus for node in nodes) * WHOLE
    return made


def decide(world: World, ask: ColumnRequest) -> tuple[int, float, float]:
    """The number of seats, and the seconds that it took by the wall and of the thread."""
    begun, used = perf_counter(), thread_time()
    arrive(world.demand, ask.gpus, ask.share, ask.cpu, ask.memory, ask.nodes)
    seats = place(world.cluster, world.demand, ask)
    if seats:
        take_all(world.cluster, ask)
    used, took = thread_time() - used, perf_counter() - begun
    if seats:
        cluster = world.cluster
        at = [
            (int(cluster.out_node[seat]), int(cluster.out_mask[seat]))
            for seat in range(seats)
        ]
        world.held.append((ask, at))
        world.used += millis_of(ask)
    return seats, took, used


def millis_of(ask: ColumnRequest) -> int:
    return (ask.gpus * WHOLE + ask.share) * ask.nodes


def end_some(world: World, chance: Random) -> None:
    while world.used > FULL * world.capacity:
        at = chance.randrange(len(world.held))
        world.held[at], world.held[-1] = world.held[-1], world.held[at]
        ask, seats = world.held.pop()
        for node, mask in seats:
            millis = (
                WHOLE
                if ask.gpus
                else share_millis(ask.share, world.cluster.slices[node])
            )
            give(world.cluster, node, mask, millis, ask.cpu, ask.memory, ask.alone)
        world.used -= millis_of(ask)


def next_ask(world: World, chance: Random) -> ColumnRequest:
    ask = chance.choice(world.asks)
    if chance.random() < 0.2:
        bound = chance.random() < 0.5
        topology = REQUIRE if bound else PREFER
        nodes = 2 ** chance.randrange(8)
        ask = ColumnRequest(
            nodes=nodes,
            gpus=8,
            cpu=64_000,
            memory=262_144,
            topology=topology,
            level=RACK,
        )
    typed = chance.random() < 1 / 3
    return (
        ask._replace(group=chance.randrange(1, 1 + world.gang_types)) if typed else ask
    )


def numpy_best_fit(world: World, ask: ColumnRequest) -> float:
    """Seconds of one search for the fullest node that holds a pod."""
    cluster, wide = world.cluster, world.cluster.max_gpus
    begun = perf_counter()
    able = (cluster.free_cpu >= ask.cpu) & (cluster.free_memory >= ask.memory)
    able &= cluster.eligible[
        ask.group * cluster.nodes : (ask.group + 1) * cluster.nodes
    ]
    if ask.share:
        able &= (cluster.free_gpu.reshape(-1, wide) >= ask.share).any(axis=1)
    else:
        able &= cluster.free_whole >= ask.gpus
    np.argmin(np.where(able, cluster.free_millis, 1 << 40))
    return perf_counter() - begun


def full_world(
    by: str, copies: int, decisions: int, traces: Path, chance: Random
) -> World:
    """80 % full of pods, or of the mix of decisions; then a while has passed."""
    world = world_of(copies, traces)
    decide(world, ColumnRequest(nodes=2, gpus=8))
    while world.used < FULL * world.capacity:
        decide(
            world,
            chance.choice(world.asks) if by == "pods" else next_ask(world, chance),
        )
    for _ in range(decisions // 10):
        decide(world, next_ask(world, chance))
        end_some(world, chance)
    return world


def measure(
    by: str, decisions: int, copies: int, traces: Path, seed: int
) -> dict[str, float]:
    chance = Random(seed)
    world = full_world(by, copies, decisions, traces, chance)
    names = (
        "all wall",
        "all cpu",
        "pods wall",
        "gangs wall",
        "placed gangs wall",
        "numpy wall",
    )
    times: dict[str, list[float]] = {name: [] for name in names}
    refused = 0
    for _ in range(decisions):
        ask = next_ask(world, chance)
        if IS_COMPILED and ask.nodes == 1 and ask.gpus < 8:
            times["numpy wall"].append(numpy_best_fit(world, ask))
        seats, took, used = decide(world, ask)
        refused += not seats
        times["all wall"].append(took)
        times["all cpu"].append(used)
        times["pods wall" if ask.nodes == 1 else "gangs wall"].append(took)
        if seats > 1:
            times["placed gangs wall"].append(took)
        end_some(world, chance)
    got: dict[str, float] = {"refused": refused / decisions}
    for name, some in times.items():
        if len(some) < 2:
            continue
        cuts = statistics.quantiles(some, n=1000)
        got |= {f"{name} p50 ms": cuts[499] * 1e3, f"{name} p99 ms": cuts[989] * 1e3}
        got |= {
            f"{name} max ms": max(some) * 1e3,
            f"{name} a second": len(some) / sum(some),
        }
        got[f"{name} decisions"] = len(some)
    got["peak MB"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return got


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--decisions", type=int, default=20_000)
    parser.add_argument("--copies", type=int, default=16)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--traces", type=Path, default=TRACES)
    parser.add_argument("--json", action="store_true")
    asked = parser.parse_args()
    got = {
        by: measure(by, asked.decisions, asked.copies, asked.traces, asked.seed)
        for by in ("pods", "mix")
    }
    if asked.json:
        print(json.dumps(got))
        return
    print("| | full of pods | full of the mix |\n| --- | --- | --- |")
    for name in dict.fromkeys([*got["pods"], *got["mix"]]):
        values = (got[by].get(name, float("nan")) for by in got)
        print(f"| {name} | {' | '.join(f'{value:.4g}' for value in values)} |")


if __name__ == "__main__":
    main()
