"""One queue of a log under each of its policies, by the live decision in virtual time.

Run: .venv/bin/python benchmarks/sched/service_jct.py TRACE [--first 20000] [--jobs 600]

Nodes of 8 GPUs; who is stopped waits 60 s before it goes on. `bought`: the default policy with
preemption of any job; `default`: without.
"""

import argparse
import sys
from pathlib import Path
from time import process_time

sys.path.insert(0, str(Path(__file__).parents[2]))

from corral.domain.job import DEFAULT_QUEUE
from corral.domain.queue import Queue
from corral.domain.queue_policy import Policy, Preempt
from corral.domain.queue_tree import QueueTree
from corral.replay.queue_replay import replay_queued
from corral.traces.traces import read_trace

NODES, LARGEST = [8] * 40, 64
QUEUES = {
    "bought": Queue(name=DEFAULT_QUEUE, preempt=Preempt.ANY),
    "default": Queue(name=DEFAULT_QUEUE, preempt=Preempt.NEVER),
    "fifo": Queue(name=DEFAULT_QUEUE, policy=Policy.FIFO),
    "sjf": Queue(name=DEFAULT_QUEUE, policy=Policy.SJF),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("trace", type=Path)
    parser.add_argument("--first", type=int, default=20_000)
    parser.add_argument("--jobs", type=int, default=600)
    asked = parser.parse_args()
    work = read_trace(asked.trace).workload
    rows = range(asked.first, len(work.submits))
    work = work.only([row for row in rows if work.gpus[row] <= LARGEST][: asked.jobs])
    for name, queue in QUEUES.items():
        began = process_time()
        names = [DEFAULT_QUEUE] * (max(work.queues) + 1)
        done = replay_queued(work, NODES, QueueTree(queues=(queue,)), names)
        took = sum(end - at for end, at in zip(done.ended, work.submits, strict=True))
        print(
            f"{name}: mean completion {took / asked.jobs:,.0f} s, longest wait "
            f"{max(done.waits):,.0f} s, {done.preemptions} preemptions, "
            f"{done.lost_gpu_seconds:,.0f} GPU-s lost, {process_time() - began:.1f} s of CPU"
        )


if __name__ == "__main__":
    main()
