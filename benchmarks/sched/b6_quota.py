"""B6: a quota for each virtual cluster (VC) of Philly, against one shared pool and against each VC
alone on a partition of its own.

Run: .venv/bin/python benchmarks/sched/b6_quota.py [--jobs N]

With --jobs only the first so many are played.

To reach (issue 3): mean JCT <= 1.10 x one shared pool, and no VC worse off than in its partition.
All three go through the live decision (`replay_queued`), with the same policy and cost of a
restart. A VC's quota and its partition are the same number of GPUs: whole nodes, as many as its
largest gang needs, and the others by GPU time.
"""

from argparse import ArgumentParser
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict
from time import process_time
from typing import Any

from replays import PHILLY, TRACES, head, keep, restarting, row

from corral.domain.ids import QueueName
from corral.domain.job import DEFAULT_QUEUE
from corral.domain.queue import ANY_TYPE, Queue
from corral.domain.queue_policy import Policy
from corral.domain.queue_tree import QueueTree, whole_tree
from corral.replay import ReplayOutcome, Workload, metrics_of, parts_of, replay
from corral.replay.queue_replay import replay_queued
from corral.schedule.columns.order import POLICIES
from corral.traces.traces import read_trace

NODES, GPUS_PER_NODE = len(PHILLY.nodes), 8
RESTART_SECONDS = 60.0
Numbers = dict[str, Any]


def trace(jobs: int) -> tuple[Workload, list[str]]:
    found = read_trace(TRACES / f"{PHILLY.log}.csv.gz")
    rows = range(min(jobs, len(found.workload.submits)))
    return found.workload.only(rows), list(found.queues)


def shares(work: Workload, names: list[str]) -> dict[str, int]:
    """Nodes of each VC that has jobs; they sum to those there are."""
    seconds = {names[queue]: 0.0 for queue in work.queues}
    least = dict.fromkeys(seconds, 1)
    for queue, gpus, took in zip(work.queues, work.gpus, work.durations, strict=True):
        name = names[queue]
        seconds[name] += gpus * took
        least[name] = max(least[name], -(-gpus // GPUS_PER_NODE))
    nodes, total = dict(least), sum(seconds.values())
    for _ in range(NODES - sum(least.values())):  # each more to whom most is missing
        behind = max(
            least, key=lambda name: seconds[name] / total * NODES - nodes[name]
        )
        nodes[behind] += 1
    return nodes


def tree_of(nodes: dict[str, int], *, in_one_line: bool) -> QueueTree:
    """A queue for each VC; in one line, they lie below a queue that goes by service."""
    above = QueueName("all") if in_one_line else None
    top = Queue(
        name=QueueName("all"),
        nominal=((ANY_TYPE, NODES * 8000),),
        policy=Policy.ATTAINED,
    )
    own = [
        Queue(name=QueueName(name), parent=above, nominal=((ANY_TYPE, count * 8000),))
        for name, count in nodes.items()
    ]
    return whole_tree([top, *own] if in_one_line else own)


def numbers_of(outcome: ReplayOutcome, labels: list[str], cpu_s: float) -> Numbers:
    parts = {label: asdict(part) for label, part in parts_of(outcome, labels).items()}
    return asdict(metrics_of(outcome)) | {"parts": parts, "cpu_s": cpu_s}


def run(what: str, jobs: int) -> Numbers:
    """`pool`, `quota`, `line` (quotas, by service over all), `columns` (the pool, by the policy of
    the traces), or a VC's name: that alone on its partition."""
    begun = process_time()
    work, names = trace(jobs)
    nodes = shares(work, names)
    if what in names:
        work = work.only(
            [at for at, queue in enumerate(work.queues) if names[queue] == what]
        )
    labels = [names[queue] for queue in work.queues]
    queues = [QueueName(name) for name in names]
    sizes = [GPUS_PER_NODE] * nodes.get(what, NODES)
    if what == "columns":
        outcome = replay(work, sizes, restarting(POLICIES["default"], RESTART_SECONDS))
    elif what in ("quota", "line"):
        tree = tree_of(nodes, in_one_line=what == "line")
        outcome = replay_queued(
            work, sizes, tree, queues, restart_seconds=RESTART_SECONDS
        )
    else:
        one = [DEFAULT_QUEUE] * len(names)
        outcome = replay_queued(
            work, sizes, QueueTree(), one, restart_seconds=RESTART_SECONDS
        )
    return numbers_of(outcome, labels, process_time() - begun)


def main() -> None:
    parser = ArgumentParser()
    parser.add_argument(
        "--jobs", type=int, default=10**9, help="only the first so many"
    )
    jobs = parser.parse_args().jobs
    work, names = trace(jobs)
    nodes = shares(work, names)
    names = list(nodes)
    with ProcessPoolExecutor(2) as pool:
        asked = ["line", "pool", "quota", *names, "columns"]
        found = dict(zip(asked, pool.map(run, asked, [jobs] * len(asked)), strict=True))
    lines = report(found, names, nodes)
    part = f", the first {jobs:,} jobs only" if len(work.submits) == jobs else ""
    keep("b6", f"B6: a quota for each virtual cluster{part}", lines)


def report(
    found: dict[str, Numbers], names: list[str], nodes: dict[str, int]
) -> list[str]:
    alone = {name: found[name]["parts"][name] for name in names}
    jobs = sum(part["jobs"] for part in alone.values())
    apart = sum(part["jobs"] * part["jct_mean_s"] for part in alone.values()) / jobs
    pool, quota = found["pool"], found["quota"]
    lines = [
        f"{jobs:,} jobs on {NODES} nodes of 8 GPUs; a restart costs {RESTART_SECONDS:.0f} s."
    ]
    lines += ["", *head("Philly 64x8", "mean JCT s", "p99 JCT s", "longest wait s", "used",
                        "preemptions", "lost GPU h", "CPU s")]  # fmt: skip
    for name, one in (("one pool, columns", found["columns"]), ("one pool", pool),
                      ("a quota a VC", quota),
                      ("a quota a VC, by service", found["line"])):  # fmt: skip
        lines.append(row(name, one["jct_mean_s"], one["jct_p99_s"], one["wait_max_s"],
                         f"{one['utilisation']:.1%}", one["preemptions"],
                         one["lost_gpu_s"] / 3600, one["cpu_s"]))  # fmt: skip
    cpu = sum(found[name]["cpu_s"] for name in names)
    longest = max(part["wait_max_s"] for part in alone.values())
    lines.append(row("a partition a VC", apart, "", longest, "", "", "", cpu))
    lines += ["", *head("VC", "jobs", "GPUs", "pool JCT s", "partition JCT s", "quota JCT s",
                        "by service JCT s", "by service over partition")]  # fmt: skip
    for name in sorted(names, key=lambda name: -nodes[name]):
        mine = [
            found[what]["parts"][name]["jct_mean_s"]
            for what in ("pool", name, "quota", "line")
        ]
        jobs_of = alone[name]["jobs"]
        lines.append(
            row(name, jobs_of, nodes[name] * 8, *mine, f"{mine[3] / mine[1]:.4f}")
        )
    return [*lines, "", *verdict(found, names, pool["jct_mean_s"], apart)]


def verdict(
    found: dict[str, Numbers],
    names: list[str],
    pool_seconds: float,
    apart_seconds: float,
) -> list[str]:
    def worse(what: str) -> int:
        parts = found[what]["parts"]
        own = {name: found[name]["parts"][name]["jct_mean_s"] for name in names}
        return sum(parts[name]["jct_mean_s"] > own[name] for name in names)

    def ratio(what: str) -> str:
        return f"{found[what]['jct_mean_s'] / pool_seconds:.3f}"

    of = f"of {len(names)}"
    return [
        *head("what", "to reach", "found"),
        row("JCT with quotas, by service, over one pool", "<= 1.10", ratio("line")),
        row("VCs worse off so than apart", "0", f"{worse('line')} {of}"),
        row("JCT with quotas, by past use, over one pool", "", ratio("quota")),
        row("VCs worse off so than apart", "", f"{worse('quota')} {of}"),
        row("VCs worse off in the pool than apart", "", f"{worse('pool')} {of}"),
        row(
            "JCT of partitions over one pool", "", f"{apart_seconds / pool_seconds:.2f}"
        ),
    ]


if __name__ == "__main__":
    main()
