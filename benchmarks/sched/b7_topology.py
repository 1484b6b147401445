"""B7: how near to each other the nodes of a gang lie, and what that costs, on a real network.

Run: .venv/bin/python benchmarks/sched/b7_topology.py [--own-gpus 1080] [--seeds 3] [--json]

Venus' jobs on Alibaba's Lingjun network (847 hosts of 8 GPUs, 119 racks of up to 8 hosts, 3 pods),
their arrivals compressed so that the load is Venus' own: times between arrivals are divided by the
network's 6,776 GPUs over `--own-gpus` (1,080: all of Venus; 576: B1's 72 nodes, a load of 84 %).
One queue in order of arrival; who finds no room is passed over (FIFO-skip); nobody is preempted,
so jobs differ between placements by their wait alone. A job of more than 8 GPUs is a gang.
Figures are of ALL gangs, also of those that no rack (more than 64 GPUs) could hold.
- random: on hosts drawn from those that fit;
- packed: the same, but what is less than a host goes to the fullest that holds it;
- greedy: packed, and a gang takes hosts in their listed order, from the first rack that holds it,
  else the first pod, else anywhere.
- corral: `place_near`: a gang waits so many seconds for a rack, then for a pod that holds it, then
  takes what there is;
- corral, relocating: no locality delay, but a gang that comes and finds no rack has others leave
  one for elsewhere (`defragment`), within 600 GPU-seconds lost for each GPU of its own. That costs
  a job 120 s (a save, a stop, a start), and happens to it after an hour at the earliest.
To reach (issue 3): >= 93 % of gangs in one rack, >= 98 % in one pod, mean JCT within 1 % of random.
"""

import argparse
import csv
import gzip
import heapq
import json
import statistics
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from openb import TRACES

from corral.schedule.arrays.cluster import (
    ANYWHERE,
    POD,
    RACK,
    WHOLE,
    ClusterArrays,
    NodeColumns,
    cluster_of,
    give,
    take,
)
from corral.schedule.arrays.fit import REQUIRE, ColumnRequest
from corral.schedule.arrays.fragmentation import arrive, new_demand
from corral.schedule.columns.defragment import MovableGangs, Seats, defragment
from corral.schedule.columns.locality import (
    LocalityDelay,
    level_for,
    nearest,
    place_near,
)
from corral.schedule.columns.placement import take_all

GPUS = 8
RELOCATION_SECONDS, BUDGET, SETTLED = 120.0, 600.0, 3600.0
DELAYS = (
    LocalityDelay(0, 0),
    LocalityDelay(600, 1800),
    LocalityDelay(1800, 3600),
    LocalityDelay(),
)
Placing = Callable[
    [ClusterArrays, ColumnRequest, float], int
]  # the last: seconds waited


@dataclass(frozen=True, slots=True)
class Job:
    submit_seconds: float
    run_seconds: float
    ask: ColumnRequest


class Outcome(NamedTuple):
    """`in_rack`, `in_pod`: percent of all gangs."""

    in_rack: float
    in_pod: float
    jct_seconds: float
    wait_seconds: float
    longest_seconds: float
    lost_percent: float


class Held(NamedTuple):
    seats: Seats
    ends_seconds: float
    since: float


def hosts(traces: Path) -> list[NodeColumns]:
    with (traces / "alibaba_lingjun2023.nodes.csv").open() as file:
        rows = list(csv.DictReader(file))
    racks = sorted({row["rack"] for row in rows})
    pods = sorted({row["spine"] for row in rows})
    return [
        NodeColumns(
            gpus=GPUS,
            cpu_millis=1,
            memory_mib=1,
            nvlink=at,
            rack=racks.index(row["rack"]),
            pod=pods.index(row["spine"]),
        )
        for at, row in enumerate(rows)
    ]


def jobs_of(traces: Path, compressed: float) -> list[Job]:
    made = []
    with gzip.open(traces / "helios_venus.csv.gz", "rt") as file:
        for row in csv.DictReader(file):
            gpus = round(float(row["gpus"]))
            nodes = -(-gpus // GPUS)
            ask = ColumnRequest(nodes=nodes, gpus=-(-gpus // nodes))
            made.append(
                Job(float(row["submit_s"]) / compressed, float(row["duration_s"]), ask)
            )
    return made


def ours(delay: LocalityDelay) -> Placing:
    demand, levels = new_demand(), dict[ColumnRequest, int]()

    def seats(cluster: ClusterArrays, ask: ColumnRequest, waited: float) -> int:
        if not waited:
            arrive(demand, ask.gpus, ask.share, ask.cpu, ask.memory, ask.nodes)
        if ask not in levels:
            levels[ask] = int(nearest(cluster, ask))
        return int(
            place_near(cluster, demand, ask, level_for(levels[ask], waited, delay))
        )

    return seats


def simple(kind: str, seed: int) -> Placing:
    """Random, packed or greedy."""
    chance = np.random.default_rng(seed)

    def seats(cluster: ClusterArrays, ask: ColumnRequest, waited: float) -> int:
        able = np.flatnonzero(cluster.free_whole >= ask.gpus)
        if len(able) < ask.nodes:
            return 0
        if kind != "greedy" or ask.nodes == 1:
            chance.shuffle(able)
        if kind != "random" and ask.nodes == 1:
            able = able[[np.argmin(cluster.free_whole[able])]]
        elif kind == "greedy":
            able = first_domain(cluster, able, ask.nodes)
        for seat, node in enumerate(able[: ask.nodes]):
            start = node * cluster.max_gpus
            free = np.flatnonzero(cluster.free_gpu[start : start + GPUS] == WHOLE)
            cluster.out_node[seat] = node
            cluster.out_mask[seat] = sum(1 << int(index) for index in free[: ask.gpus])
        return ask.nodes

    return seats


def domains(cluster: ClusterArrays, level: int, nodes: Any) -> Any:
    return cluster.domain[level * cluster.nodes + nodes]


def first_domain(cluster: ClusterArrays, able: Any, wanted: int) -> Any:
    for level in range(RACK, ANYWHERE):
        of_each = domains(cluster, level, able)
        held = np.bincount(of_each)
        for place_ in dict.fromkeys(of_each):
            if held[place_] >= wanted:
                return able[of_each == place_]
    return able


class Replay:
    """Virtual time from event to event. Jobs of one ask wait in one line, in order of arrival."""

    def __init__(
        self, nodes: list[NodeColumns], jobs: list[Job], placing: Placing
    ) -> None:
        self.cluster, self.jobs, self.placing = cluster_of(nodes), jobs, placing
        self.waiting: dict[ColumnRequest, deque[int]] = {}
        self.ends: list[tuple[float, int]] = []
        self.held: dict[int, Held] = {}
        self.lost_gpu_seconds = 0.0
        self.delays_seconds = 0.0
        self.waits: list[float] = []
        self.spans: list[tuple[int, int]] = []

    def run(self) -> Outcome:
        for number, job in enumerate(self.jobs):
            self._end_until(job.submit_seconds)
            self.waiting.setdefault(job.ask, deque()).append(number)
            self._start(
                job.submit_seconds, lambda ask, new=job.ask: ask.nodes > 1 or ask == new
            )
        self._end_until(float("inf"))
        return self._outcome()

    def _end_until(self, now: float) -> None:
        while self.ends and self.ends[0][0] <= now:
            at, number = heapq.heappop(self.ends)
            if self.held[number].ends_seconds != at:
                continue
            for node, mask in self.held.pop(number).seats:
                give(self.cluster, node, mask, WHOLE, 0, 0, False)
            self._start(at, lambda ask: True)

    def _start(self, now: float, is_tried: Callable[[ColumnRequest], bool]) -> None:
        """All who fit, by order of arrival. Whom no end has helped since they were tried stays out,
        but for gangs, whose locality delay may have ended."""
        heads = [
            (line[0], ask)
            for ask, line in self.waiting.items()
            if line and is_tried(ask)
        ]
        heapq.heapify(heads)
        while heads:
            number, ask = heapq.heappop(heads)
            waited = now - self.jobs[number].submit_seconds
            self._before(ask, waited, now)
            seats = self.placing(self.cluster, ask, waited)
            if not seats:
                continue
            take_all(self.cluster, ask)
            self.waiting[ask].popleft()
            self._note(number, now, seats)
            if self.waiting[ask]:
                heapq.heappush(heads, (self.waiting[ask][0], ask))

    def _before(self, ask: ColumnRequest, waited: float, now: float) -> None:
        """What is done before a job is tried: here nothing."""

    def _note(self, number: int, now: float, seats: int) -> None:
        cluster, job = self.cluster, self.jobs[number]
        held = tuple(
            (int(cluster.out_node[i]), int(cluster.out_mask[i])) for i in range(seats)
        )
        self.held[number] = Held(held, now + job.run_seconds, now)
        heapq.heappush(self.ends, (now + job.run_seconds, number))
        self.waits.append(now - job.submit_seconds)
        if seats > 1:
            nodes = np.array([node for node, _ in held])
            racks, pods = (
                len(set(domains(cluster, level, nodes))) for level in (RACK, POD)
            )
            self.spans.append((racks, pods))

    def _outcome(self) -> Outcome:
        racks, pods = (
            [racks for racks, _ in self.spans],
            [pods for _, pods in self.spans],
        )
        run = statistics.mean(job.run_seconds for job in self.jobs)
        return Outcome(
            in_rack=100 * racks.count(1) / len(racks),
            in_pod=100 * pods.count(1) / len(pods),
            jct_seconds=run
            + statistics.mean(self.waits)
            + self.delays_seconds / len(self.jobs),
            wait_seconds=statistics.mean(self.waits),
            longest_seconds=max(self.waits),
            lost_percent=100
            * self.lost_gpu_seconds
            / sum(gpu_seconds(job) for job in self.jobs),
        )


def gpu_seconds(job: Job) -> float:
    return job.run_seconds * job.ask.nodes * job.ask.gpus


class Relocating(Replay):
    """Others leave a rack for a gang that comes and finds none."""

    def __init__(self, nodes: list[NodeColumns], jobs: list[Job]) -> None:
        super().__init__(nodes, jobs, ours(LocalityDelay(0, 0)))
        self.demand = new_demand()

    def _before(self, ask: ColumnRequest, waited: float, now: float) -> None:
        if ask.nodes == 1 or waited or nearest(self.cluster, ask) > RACK:
            return
        near = ask._replace(topology=REQUIRE, level=RACK)
        may = [
            self._running(n)
            for n, held in self.held.items()
            if now - held.since >= SETTLED
        ]
        budget = BUDGET * ask.nodes * ask.gpus
        relocations = defragment(
            self.cluster, self.demand, near, may, budget_gpu_seconds=budget
        )
        for one in relocations:
            self._turn(one.job, give)
        for one in relocations:
            ends = self.held[one.job].ends_seconds + RELOCATION_SECONDS
            self.held[one.job] = Held(one.to, ends, now)
            heapq.heappush(self.ends, (ends, one.job))
            self._turn(one.job, take)
            self.lost_gpu_seconds += self._running(one.job).cost_gpu_seconds
            self.delays_seconds += RELOCATION_SECONDS

    def _running(self, number: int) -> MovableGangs:
        ask = self.jobs[number].ask
        cost = RELOCATION_SECONDS * ask.nodes * ask.gpus
        return MovableGangs(
            job=number, ask=ask, seats=self.held[number].seats, cost_gpu_seconds=cost
        )

    def _turn(self, number: int, how: Callable[..., None]) -> None:
        for node, mask in self.held[number].seats:
            how(self.cluster, node, mask, WHOLE, 0, 0, False)


def measure(own_gpus: int, seeds: int, traces: Path) -> dict[str, Outcome]:
    """By placement; of the random ones the mean of all seeds."""
    nodes = hosts(traces)
    jobs = jobs_of(traces, len(nodes) * GPUS / own_gpus)
    got = {}
    for kind in ("random", "packed", "greedy"):
        some = [Replay(nodes, jobs, simple(kind, seed)).run() for seed in range(seeds)]
        got[kind] = Outcome(
            *(statistics.mean(values) for values in zip(*some, strict=True))
        )
    for delay in DELAYS:
        name = f"corral, locality delay {delay.rack_seconds:.0f} s and {delay.pod_seconds:.0f} s"
        got[name] = Replay(nodes, jobs, ours(delay)).run()
    got["corral, relocating"] = Relocating(nodes, jobs).run()
    return got


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--own-gpus", default="1080,640,576")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--traces", type=Path, default=TRACES)
    parser.add_argument("--json", action="store_true")
    asked = parser.parse_args()
    for own in asked.own_gpus.split(","):
        got = measure(int(own), asked.seeds, asked.traces)
        if asked.json:
            print(
                json.dumps(
                    {own: {name: outcome._asdict() for name, outcome in got.items()}}
                )
            )
            continue
        for name, one in got.items():
            near = f"{one.in_rack:.2f} | {one.in_pod:.2f} | {one.jct_seconds:.0f}"
            against = " | ".join(
                f"{100 * (one.jct_seconds / got[other].jct_seconds - 1):+.2f}"
                for other in ("random", "packed")
            )
            waits = f"{one.wait_seconds:.0f} | {one.longest_seconds:.0f} | {one.lost_percent:.2f}"
            print(f"| {own} | {name} | {near} | {against} | {waits} |", flush=True)


if __name__ == "__main__":
    main()
