"""B8: how fast the replay is, metrics included, after a first run that compiles.

Run: .venv/bin/python benchmarks/sched/b8_speed.py [--plain]

To reach (issue 3): >= 50,000 jobs/s with LAS and SJF on Venus; EASY over Philly <= 20 s. --plain
runs without numba, as the base install does, over the first 5,000 jobs.
"""

import sys

if "--plain" in sys.argv:
    sys.modules["numba"] = None  # type: ignore[assignment]

from replays import PHILLY, VENUS, Case, head, keep, row, run

PLAIN_JOBS = 5_000
RUNS = 3


def main() -> None:
    is_plain = "--plain" in sys.argv
    lines = head("trace", "policy", "jobs", "best of 3, s", "CPU s", "jobs/s", "jobs/CPU s",
                 "to reach")  # fmt: skip
    for case, policy, goal in (
        (VENUS, "las", ">= 50,000 jobs/s"),
        (VENUS, "sjf", ">= 50,000 jobs/s"),
        (VENUS, "sjf-oracle", ">= 50,000 jobs/s"),
        (VENUS, "default", "no goal"),
        (PHILLY, "easy", "<= 20 s"),
        (PHILLY, "easy-oracle", "<= 20 s"),
    ):
        lines.append(
            _measured(case, policy, goal, PLAIN_JOBS if is_plain else sys.maxsize)
        )
    keep("b8-plain" if is_plain else "b8", "B8: speed of the replay", lines)


def _measured(case: Case, policy: str, goal: str, most: int) -> str:
    whole = case.workload
    work = whole.only(range(min(most, len(whole.submits))))
    run(case, whole.only(range(200)), policy)
    runs = [run(case, work, policy) for _ in range(RUNS)]
    wall, cpu = (min(one[clock] for one in runs) for clock in ("wall_s", "cpu_s"))
    jobs = len(work.submits)
    rates = (f"{jobs / wall:,.0f}", f"{jobs / cpu:,.0f}")
    return row(case.name, policy, jobs, f"{wall:.2f}", f"{cpu:.2f}", *rates, goal)


if __name__ == "__main__":
    main()
