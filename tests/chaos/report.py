"""What is told of chaos runs: lines for each seed in a terminal, and the page of all of
them."""

import os
import platform
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from tests.chaos.checker import Violation, allowed
from tests.chaos.faults import WEIGHTS
from tests.chaos.history import History

NOT_INJECTED: Final = """Not injected here: lost or slow networks (one machine, loopback), steps of
the clock, errors of a disk other than that it is full, loss of writes that were not synced
(processes are killed, the kernel is not), several heads, other engines, other users than root.
Tests for some of them: tests/scenarios, tests/contracts, tests/simulate."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """One seed's run, and what the checker found. `load`: the machine's over the last 5
    min."""

    history: History
    violations: Sequence[Violation]
    load: float


def of_seed(run: Run) -> str:
    """Lines for a terminal."""
    history = run.history
    lines = [
        f"seed {history.seed}: {history.seconds / 60:g} min, {len(history.acknowledged)} jobs "
        f"acknowledged, {attempts(history)} attempts, "
        f"{len(history.faults)} faults, load {run.load:.1f}: {len(run.violations)} violations",
        "  states: " + _counts(Counter(one.state for one in history.jobs)),
        "  causes: " + _counts(causes(history)),
        "  faults: " + _counts(Counter(one.kind for one in history.faults)),
        "  counts: " + _counts({**history.counts, **allowed(history)}),
    ]
    lines += [f"  note: {one}" for one in history.notes]
    lines += [
        f"  failed: corral {one.words} ({one.code}): {one.text.strip()[-300:]}"
        for one in history.failed_commands
    ]
    return "\n".join([*lines, *(f"  VIOLATION {one}" for one in run.violations)])


def attempts(history: History) -> int:
    return sum(len(one.attempts) for one in history.jobs)


def causes(history: History) -> Counter[str]:
    """Who is to blame for the ends of all attempts."""
    return Counter(attempt.cause for one in history.jobs for attempt in one.attempts)


def _counts(counts: Mapping[str, int]) -> str:
    return (
        ", ".join(f"{name} {count}" for name, count in sorted(counts.items())) or "none"
    )


def page(runs: Sequence[Run]) -> str:
    """The page to keep: what was injected, what was acknowledged, what did not hold."""
    now = datetime.now(UTC)
    wrong = [one for run in runs for one in run.violations]
    lines = [
        f"# Chaos, {now:%Y-%m-%d}",
        "",
        f"{now:%Y-%m-%d %H:%M} UTC, {platform.machine()}, {os.cpu_count()} cores, Python "
        f"{platform.python_version()}, Linux {platform.release()}. `make chaos`: "
        f"{sum(one.history.seconds for one in runs) / 60:g} minutes of faults in all, then peace "
        "until every job is over. Three nodes of two pretended GPUs, one machine.",
        "",
        f"**{len(wrong)} violations.**",
        "",
        *_table(["", *(f"seed {one.history.seed}" for one in runs)], _rows(runs)),
        "",
        "## Violations",
        "",
        *([f"- {one}" for one in wrong] or ["None."]),
        "",
        "## Faults",
        "",
        *_table(
            ["fault", *(f"seed {one.history.seed}" for one in runs)], _fault_rows(runs)
        ),
        "",
        NOT_INJECTED,
    ]
    notes = [(run.history.seed, note) for run in runs for note in run.history.notes]
    if notes:
        lines += [
            "",
            "## Notes",
            "",
            *(f"- seed {seed}: {note}" for seed, note in notes),
        ]
    return "\n".join(lines) + "\n"


def _rows(runs: Sequence[Run]) -> list[list[object]]:
    told = [one.history for one in runs]
    return [
        ["minutes of faults", *(f"{one.seconds / 60:g}" for one in told)],
        ["faults", *(len(one.faults) for one in told)],
        ["jobs acknowledged", *(len(one.acknowledged) for one in told)],
        ["tries to submit without an answer", *(_unanswered(one) for one in told)],
        ["attempts", *(attempts(one) for one in told)],
        ["ended by a fault of the cluster", *(causes(one)["infra"] for one in told)],
        ["ended by the job itself", *(causes(one)["user"] for one in told)],
        ["ended by a request or a limit", *(causes(one)["request"] for one in told)],
        ["evidence files of ranks", *(len(one.evidence) for one in told)],
        ["saves recorded", *(sum(len(job.saves) for job in one.jobs) for one in told)],
        [
            "backups made and restored, the last started",
            *(len(one.backups) for one in told),
        ],
        [
            "commands that failed while a fault hit",
            *(len(one.failed_commands) for one in told),
        ],
        [
            "overlaps of a job with saves, its node away",
            *(allowed(one)["overlaps"] for one in told),
        ],
        [
            "exits not counted, their shim, node or disk was hit",
            *(allowed(one)["lost ends"] for one in told),
        ],
        ["load of the machine, 5 min", *(f"{one.load:.1f}" for one in runs)],
        ["violations", *(len(one.violations) for one in runs)],
    ]


def _unanswered(history: History) -> int:
    return history.counts.get("unanswered tries", 0)


def _fault_rows(runs: Sequence[Run]) -> list[list[object]]:
    counts = [Counter(fault.kind for fault in one.history.faults) for one in runs]
    return [[kind, *(count[kind] for count in counts)] for kind in WEIGHTS]


def _table(head: Sequence[str], rows: Sequence[Sequence[object]]) -> list[str]:
    lines = [head, ["---"] * len(head), *rows]
    return ["| " + " | ".join(map(str, line)) + " |" for line in lines]
