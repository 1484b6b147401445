"""B2: queues whose users give limits: KTH-SP2 and Lublin, against FIFO and both forms of EASY.

Run: .venv/bin/python benchmarks/sched/b2_backfill.py

To reach (issue 3): KTH-SP2 bounded slowdown <= 65 with a longest wait <= 290,000 s; no promised
start missed. Promises are counted from the log of events, not by the scheduler. Where a job may
outlast its limit (475 do in KTH-SP2) others can be late by that; so promises are counted once as
the log is, and once with every job ended at its limit, where none may be missed. The log of Lublin
has no limits: `easy-oracle` is told the run times as if they were limits, the others guess by kin.
"""

from dataclasses import replace

from replays import KTH, LUBLIN, POLICIES, Case, head, keep, restarting, row, run

from corral.replay import Workload, replay
from corral.replay.array_replay import ReplayEvent

STARTED, PROMISED = 0, 3


def missed(case: Case, work: Workload, policy: str) -> tuple[int, int]:
    """Promises made, and those of jobs that started later than they were promised."""
    promised: dict[int, float] = {}
    late: set[int] = set()

    def see(event: ReplayEvent) -> None:
        if event.kind == PROMISED:
            promised.setdefault(event.job, event.service)
        elif (
            event.kind == STARTED
            and event.at > promised.get(event.job, event.at) + 1e-6
        ):
            late.add(event.job)

    replay(work, case.nodes, restarting(POLICIES[policy], 60.0), on_event=see)
    return len(promised), len(late)


def kept(work: Workload) -> Workload:
    """The same, with every job ended at its limit at the latest."""
    pairs = zip(work.durations, work.limits, strict=True)
    return replace(
        work, durations=[min(own, limit) if limit else own for own, limit in pairs]
    )


def main() -> None:
    lines = head("trace", "policy", "slowdown", "mean wait s", "longest wait s", "used",
                 "promises", "missed", "missed, none over its limit", "wall s")  # fmt: skip
    for case in (KTH, LUBLIN):
        work = case.workload
        has_limits = bool(min(work.limits))
        names = [
            "fifo",
            "easy",
            "easy-sjf",
            "easy-oracle",
            "conservative",
            "backfill",
            "default",
        ]
        for policy in names:
            one = run(case, work, policy)
            made, late = missed(case, work, policy)
            strict = (
                missed(case, kept(work), policy)[1]
                if has_limits
                else (late if policy == "easy-oracle" else "no limits")
            )
            lines.append(row(case.name, policy, one["slowdown_mean"], one["wait_mean_s"],
                             one["wait_max_s"], f"{one['utilisation']:.1%}", made, late, strict,
                             one["wall_s"]))  # fmt: skip
    keep("b2", "B2: backfill with user limits", lines)


if __name__ == "__main__":
    main()
