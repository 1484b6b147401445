"""B1: no-oracle queueing on three traces, one configuration, against oracles and FIFO-skip.

Run: .venv/bin/python benchmarks/sched/b1_queueing.py

To reach (issue 3): mean JCT, geometric mean over Venus and PAI, <= 1.05 x preemptive SRTF with an
oracle; Philly <= SJF with an oracle; longest wait on each <= 0.6 x FIFO-skip; at 600 s a restart
<= 1.15 x its own value at 60 s.
"""

from math import sqrt

from replays import PAI, PHILLY, VENUS, head, keep, row, run

POLICIES = ("fifo-skip", "sjf", "sjf-oracle", "las", "srtf-oracle", "default")


def main() -> None:
    lines = head("trace", "policy", "restart s", "mean JCT s", "p99 JCT s", "longest wait s",
                 "slowdown", "preemptions", "lost GPU h")  # fmt: skip
    found = {}
    for case in (VENUS, PAI, PHILLY):
        work = case.workload
        for policy, restart in [
            *((name, 60.0) for name in POLICIES),
            ("default", 600.0),
        ]:
            one = run(case, work, policy, restart_seconds=restart)
            found[case.name, policy, restart] = one
            lines.append(row(case.name, policy, int(restart), one["jct_mean_s"], one["jct_p99_s"],
                             one["wait_max_s"], one["slowdown_mean"], one["preemptions"],
                             one["lost_gpu_s"] / 3_600))  # fmt: skip

    def ratio(case: str, number: str, other: str, restart: float = 60.0) -> float:
        own, base = found[case, "default", restart], found[case, other, 60.0]
        return float(own[number] / base[number])

    names = [case.name for case in (VENUS, PAI, PHILLY)]
    oracle = sqrt(ratio(names[0], "jct_mean_s", "srtf-oracle")
                  * ratio(names[1], "jct_mean_s", "srtf-oracle"))  # fmt: skip
    lines += ["", *head("what", "to reach", "found"),
              row("JCT over SRTF-oracle, Venus and PAI", "<= 1.05", f"{oracle:.3f}"),
              row("JCT over SJF-oracle, Philly", "<= 1",
                  f"{ratio(names[2], 'jct_mean_s', 'sjf-oracle'):.3f}")]  # fmt: skip
    for name in names:
        lines += [
            row(f"longest wait over FIFO-skip, {name}", "<= 0.6",
                f"{ratio(name, 'wait_max_s', 'fifo-skip'):.3f}"),
            row(f"JCT at 600 s over its own at 60 s, {name}", "<= 1.15",
                f"{ratio(name, 'jct_mean_s', 'default', 600.0):.3f}"),
        ]  # fmt: skip
    keep("b1", "B1: queueing without known lengths", lines)


if __name__ == "__main__":
    main()
