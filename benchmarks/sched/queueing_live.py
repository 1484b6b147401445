"""B1 by the live decision: one queue, as a new head has it, over whole logs, beside the columns.

Run: .venv/bin/python benchmarks/sched/queueing_live.py [--only venus|pai|philly] [--restart 60]

A minimum run time of a minute; places may be bought from every job, since every job of a log goes
on from where it was. Users are those of the log; Venus and Philly have none. A play takes minutes.
"""

import argparse
from dataclasses import asdict
from time import process_time

from replays import PAI, PHILLY, VENUS, Case, head, keep, row, run

from corral.domain.job import DEFAULT_QUEUE
from corral.domain.queue import Queue
from corral.domain.queue_policy import Preempt
from corral.domain.queue_tree import QueueTree
from corral.replay import Workload, metrics_of
from corral.replay.queue_replay import fits, replay_queued

GUARD_SECONDS = 60.0
CASES = {"venus": VENUS, "pai": PAI, "philly": PHILLY}
ORACLES = {"venus": "srtf-oracle", "pai": "srtf-oracle", "philly": "sjf-oracle"}
COLUMNS = ("trace", "policy", "restart s", "mean JCT s", "over the oracle", "longest wait s",
           "over fifo-skip", "slowdown", "preemptions", "lost GPU h", "CPU s")  # fmt: skip


def able(case: Case) -> Workload:
    """The jobs whose nodes can each give an equal part, as a head's gangs are."""
    work = case.workload
    return work.only(
        [row for row, gpus in enumerate(work.gpus) if fits(gpus, case.nodes)]
    )


def live(case: Case, work: Workload, restart_seconds: float) -> dict[str, float]:
    """The numbers of a play of the whole log."""
    queue = Queue(name=DEFAULT_QUEUE, preempt=Preempt.ANY)
    tree = QueueTree(queues=(queue,), min_runtime_seconds=GUARD_SECONDS)
    names = [DEFAULT_QUEUE] * (max(work.queues) + 1)
    begun = process_time()
    done = replay_queued(work, case.nodes, tree, names, restart_seconds=restart_seconds)
    return asdict(metrics_of(done)) | {"cpu_s": process_time() - begun}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", choices=CASES)
    parser.add_argument("--restart", type=float, default=60.0)
    asked = parser.parse_args()
    lines = head(*COLUMNS)
    for name, case in CASES.items():
        if asked.only not in (None, name):
            continue
        work = able(case)
        policies = ("fifo-skip", ORACLES[name], "default")
        found = {
            policy: run(case, work, policy, restart_seconds=asked.restart)
            for policy in policies
        } | {"live": live(case, work, asked.restart)}
        oracle, skip = found[ORACLES[name]], found["fifo-skip"]
        for policy, one in found.items():
            lines.append(row(
                case.name, policy, int(asked.restart), one["jct_mean_s"],
                f"{one['jct_mean_s'] / oracle['jct_mean_s']:.3f}", one["wait_max_s"],
                f"{one['wait_max_s'] / skip['wait_max_s']:.3f}", one["slowdown_mean"],
                one["preemptions"], one["lost_gpu_s"] / 3_600, one["cpu_s"],
            ))  # fmt: skip
    keep("b1-live", "B1 by the live decision: one queue over whole logs", lines)


if __name__ == "__main__":
    main()
