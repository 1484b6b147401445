"""A queue by EASY, in the live decision and in the columns: KTH-SP2, the same jobs, the same run.

Run: .venv/bin/python benchmarks/sched/backfill_live.py [--jobs 6000]

All processors are one node, since any will do for a job of this log. Nobody is given time to start
or to be seen gone here: a limit is a limit in both.
"""

import argparse
from time import process_time

from replays import KTH, POLICIES, restarting

from corral.domain.job import DEFAULT_QUEUE
from corral.domain.queue import Queue
from corral.domain.queue_policy import Policy
from corral.domain.queue_tree import QueueTree
from corral.replay import ReplayOutcome, Workload, replay
from corral.replay.queue_replay import replay_queued

SHORTEST_SECONDS = 10.0  # of a bounded slowdown


def slowdown(work: Workload, done: ReplayOutcome) -> float:
    """The mean of (wait + run) / max(run, 10 s), at least 1."""
    rows = zip(done.ended, work.submits, work.durations, strict=True)
    each = [max(1.0, (end - at) / max(own, SHORTEST_SECONDS)) for end, at, own in rows]
    return sum(each) / len(each)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jobs", type=int, default=6000)
    asked = parser.parse_args()
    work = KTH.workload.only(list(range(asked.jobs)))
    nodes = [sum(KTH.nodes)]
    names = [DEFAULT_QUEUE] * (max(work.queues) + 1)

    def tell(name: str, done: ReplayOutcome, began: float) -> None:
        print(
            f"{name}: bounded slowdown {slowdown(work, done):.2f}, mean wait "
            f"{sum(done.waits) / len(done.waits):,.0f} s, longest {max(done.waits):,.0f} s, "
            f"{process_time() - began:.1f} s of CPU",
            flush=True,
        )

    for name in ("fifo", "easy", "conservative"):
        began = process_time()
        tell(
            f"columns, {name}",
            replay(work, nodes, restarting(POLICIES[name], 0.0)),
            began,
        )
    for policy in (Policy.BACKFILL, Policy.CONSERVATIVE):
        began = process_time()
        tree = QueueTree(queues=(Queue(name=DEFAULT_QUEUE, policy=policy),))
        done = replay_queued(work, nodes, tree, names, restart_seconds=0.0)
        tell(f"live, {policy}", done, began)


if __name__ == "__main__":
    main()
