"""What is told of chaos runs: a few lines for each seed, and the page of all of them."""

from collections import Counter
from collections.abc import Sequence

from tests.chaos.checker import Violation
from tests.chaos.history import History


def of_seed(history: History, wrong: Sequence[Violation], load: float) -> str:
    """Lines for a terminal."""
    states = Counter(one.state for one in history.jobs)
    lines = [
        f"seed {history.seed}: {history.seconds / 60:g} min, {len(history.acknowledged)} jobs "
        f"acknowledged, {sum(len(one.attempts) for one in history.jobs)} attempts, "
        f"{len(history.faults)} faults, load {load:.1f}: {len(wrong)} violations",
        "  states: " + _counts(states),
        "  faults: " + _counts(Counter(one.kind for one in history.faults)),
        "  counts: " + _counts(history.counts),
    ]
    lines += [f"  note: {one}" for one in history.notes]
    lines += [
        f"  failed: corral {one.words} ({one.code}): {one.text.strip()[-200:]}"
        for one in history.failed_commands
    ]
    return "\n".join([*lines, *(f"  VIOLATION {one}" for one in wrong)])


def _counts(counts: "Counter[str] | dict[str, int]") -> str:
    return ", ".join(f"{name} {count}" for name, count in sorted(counts.items())) or "none"


def page(found: Sequence[tuple[History, list[Violation], float]]) -> str:
    return "\n\n".join(of_seed(*one) for one in found) + "\n"
