"""How late a job may end: the default policy at eight loads of three traces, beside FIFO.

Run: .venv/bin/python benchmarks/sched/longest_wait.py

The rule for late jobs was tuned on the first half of each trace; the second half is reported.
`excess` is how much later the worst job ends than under strict FIFO, in multiples of its own run
time (of an hour at least). `longest wait` is the longest total wait, divided by that of FIFO-skip.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from replays import PAI, PHILLY, VENUS, Case, head, keep, restarting, row

from corral.replay import Workload, replay
from corral.schedule.columns.order import POLICIES

LOADS = (0.70, 0.75, 0.80, 0.85, 0.90, 0.95, 1.00, 1.05)
HOUR_SECONDS = 3600.0
GPUS = 8  # of a node


@dataclass(frozen=True, slots=True)
class Ends:
    """When the jobs of one replay ended, in seconds after their submission."""

    seconds: "np.ndarray[tuple[int], np.dtype[np.float64]]"
    preemptions: int


def half_of(work: Workload, half: int) -> Workload:
    middle = len(work.submits) // 2
    rows = (range(middle), range(middle, len(work.submits)))
    return work.only(rows[half])


def load_on_one_gpu(work: Workload) -> float:
    span = work.submits[-1] - work.submits[0]
    return sum(map(float.__mul__, map(float, work.gpus), work.durations)) / span


def ends_of(work: Workload, nodes: Sequence[int], policy: str) -> Ends:
    outcome = replay(work, nodes, restarting(POLICIES[policy], 60.0))
    seconds = np.asarray(outcome.ended) - np.asarray(work.submits)
    return Ends(seconds, outcome.preemptions)


def lines_of(case: Case, half: int) -> list[str]:
    work = half_of(case.workload, half)
    demand, lines = load_on_one_gpu(work), []
    for load in LOADS:
        nodes = [GPUS] * round(demand / load / GPUS)
        fitting = [index for index, gpus in enumerate(work.gpus) if gpus <= sum(nodes)]
        part = work.only(fitting)
        run_seconds = np.asarray(part.durations)
        ends = {
            name: ends_of(part, nodes, name)
            for name in ("fifo", "fifo-skip", "default")
        }
        least = np.maximum(run_seconds, HOUR_SECONDS)
        excess = {
            name: float(((ends[name].seconds - ends["fifo"].seconds) / least).max())
            for name in ("fifo-skip", "default")
        }
        waits = {
            name: float((end.seconds - run_seconds).max()) for name, end in ends.items()
        }
        lines.append(row(
            f"{case.log}, half {half + 1}, {len(nodes)}x8", f"{demand / sum(nodes):.2f}",
            float(ends["default"].seconds.mean()), float(ends["fifo-skip"].seconds.mean()),
            f"{excess['default']:.1f}", f"{excess['fifo-skip']:.1f}",
            f"{waits['default'] / waits['fifo-skip']:.2f}", ends["default"].preemptions,
        ))  # fmt: skip
    return lines


def main() -> None:
    lines = head("trace and nodes", "load", "mean JCT s", "FIFO-skip's", "excess",
                 "FIFO-skip's", "longest wait", "preemptions")  # fmt: skip
    for half in (0, 1):
        for case in (VENUS, PAI, PHILLY):
            lines += lines_of(case, half)
    keep("longest-wait", "The longest wait, and how late a job may end", lines)


if __name__ == "__main__":
    main()
