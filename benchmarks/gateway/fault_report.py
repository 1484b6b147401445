"""Tables of the measurements of faults: figures measured beside those asked for."""

import json
import os
import platform
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from statistics import median
from typing import Any, Final, Self

OK: Final = 200
REFUSALS: Final = (429, 503)
LOST: Final = 0
UNANSWERED: Final = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """End of one request.

    Args:
        at: Second of the schedule, from the start of the run.
        status: HTTP status; LOST: no connection, UNANSWERED: no answer in time.
    """

    key: int
    at: float
    latency_ms: float
    status: int

    @classmethod
    def parse(cls, line: str) -> Self:
        key, at, latency, status = line.split()
        return cls(
            key=int(key),
            at=float(at),
            latency_ms=float(latency) / 1000.0,
            status=int(status),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamRun:
    """Ages of the chunks of all streams, and the cores that the proxy used."""

    lost: int
    p50_us: float
    p99_us: float
    cores: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class OverloadRun:
    """Answers under overload.

    Args:
        peak: Requests per second that the engines can answer.
        rate: Requests per second that were sent.
        memory_mb: Resident memory of the proxy, each second.
        sent: Requests that are at the engines, each second.
    """

    answers: Sequence[Answer]
    peak: float
    rate: float
    memory_mb: Sequence[float]
    sent: Sequence[float]


def quantile(values: Iterable[float], share: float) -> float:
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))] if ordered else 0.0


def decoded(path: Path) -> Any:
    return json.loads(path.read_text())


def write_encoded(path: Path, state: Any) -> None:
    path.write_text(json.dumps(state))


def _latency(answers: Iterable[Answer], share: float) -> float:
    return quantile((answer.latency_ms for answer in answers), share)


def _failed(answers: Iterable[Answer]) -> list[Answer]:
    return [answer for answer in answers if answer.status != OK]


def _statuses(answers: Iterable[Answer]) -> str:
    counts = Counter(answer.status for answer in _failed(answers))
    names = {LOST: "lost", UNANSWERED: "unanswered"}
    texts = [f"{number} {names.get(one, one)}" for one, number in counts.items()]
    return ", ".join(texts) or "-"


def _goal(text: str, measured: str, *, is_met: bool) -> str:
    return f"| {text} | {measured} | {'met' if is_met else 'missed'} |"


_GOAL_HEAD: Final = ["", "| goal | measured | |", "| --- | --- | --- |"]


def kill_lines(
    rows: Mapping[str, tuple[Sequence[Answer], Sequence[Answer]]],
    own: str,
    killed_at: float,
) -> list[str]:
    lines = [
        "## kill -9 of 1 of 3 engines, 600 requests/s, 20 ms each",
        "",
        "| proxy | requests | failed | kinds | p50 / p99 undisturbed, ms "
        "| p50 / p99 with the kill, ms | p99 of the second after it, ms | longest, ms |",
        "| --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    for name, (before, answers) in rows.items():
        after = [one for one in answers if 0.0 <= one.at - killed_at < 1.0]
        lines.append(
            f"| {name} | {len(answers)} | {len(_failed(answers))} "
            f"| {_statuses(answers)} "
            f"| {_latency(before, 0.5):.1f} / {_latency(before, 0.99):.1f} "
            f"| {_latency(answers, 0.5):.1f} / {_latency(answers, 0.99):.1f} "
            f"| {_latency(after, 0.99):.1f} | {_latency(answers, 1.0):.0f} |"
        )
    before, answers = rows[own]
    failed = len(_failed(answers))
    ratio = _latency(answers, 0.99) / _latency(before, 0.99)
    total = len(answers)
    return [
        *lines,
        *_GOAL_HEAD,
        _goal(f"0 failed of {total:,}", str(failed), is_met=failed == 0),
        _goal("p99 <= 3 x undisturbed", f"{ratio:.2f} x", is_met=ratio <= 3.0),
    ]


def added_lines(runs: Mapping[str, Sequence[Sequence[Answer]]], own: str) -> list[str]:
    quantiles = {
        name: [
            median(_latency(answers, share) for answers in rounds)
            for share in (0.5, 0.99)
        ]
        for name, rounds in runs.items()
    }
    direct = quantiles["direct"]
    lines = [
        "## Added latency at 1,000 requests/s, medians of the rounds",
        "",
        "| proxy | p50 / p99, ms | added p50 / p99, ms | failed |",
        "| --- | --- | --- | --- |",
    ]
    added = {}
    for name, (p50, p99) in quantiles.items():
        added[name] = (p50 - direct[0], p99 - direct[1])
        failed = sum(len(_failed(answers)) for answers in runs[name])
        more = f"{added[name][0]:.3f} / {added[name][1]:.3f}"
        lines.append(f"| {name} | {p50:.3f} / {p99:.3f} | {more} | {failed} |")
    lines += _GOAL_HEAD
    nginx = [name for name in added if name.startswith("nginx")]
    if nginx:
        ratio = added[own][0] / added[nginx[0]][0]
        goal = "added p50 <= 2 x nginx's"
        lines.append(_goal(goal, f"{ratio:.2f} x", is_met=ratio <= 2.0))
    goal = "p99 <= 1 ms above direct"
    above = added[own][1]
    return [*lines, _goal(goal, f"{above:.2f} ms", is_met=above <= 1.0)]


def stream_lines(runs: Mapping[str, StreamRun], own: str) -> list[str]:
    lines = [
        "## 200 streams of 50 tokens/s: age of a chunk",
        "",
        "| proxy | p50 / p99, ms | cores | chunks missing |",
        "| --- | --- | --- | --- |",
    ]
    for name, run in runs.items():
        used = "-" if run.cores is None else f"{run.cores:.2f}"
        ages = f"{run.p50_us / 1000:.3f} / {run.p99_us / 1000:.3f}"
        lines.append(f"| {name} | {ages} | {used} | {run.lost} |")
    lines += _GOAL_HEAD
    nginx = [run for name, run in runs.items() if name.startswith("nginx")]
    mine = runs[own]
    if nginx:
        p50 = mine.p50_us / nginx[0].p50_us
        p99 = mine.p99_us / nginx[0].p99_us
        goal = "p50 and p99 <= 1.5 x nginx's"
        measured = f"{p50:.2f} x, {p99:.2f} x"
        lines.append(_goal(goal, measured, is_met=max(p50, p99) <= 1.5))
    cores = mine.cores or 0.0
    lines.append(_goal("<= 0.35 core", f"{cores:.2f}", is_met=cores <= 0.35))
    return lines


def overload_lines(run: OverloadRun) -> list[str]:
    span = max(answer.at for answer in run.answers)
    within = [
        answer
        for answer in run.answers
        if answer.status == OK and answer.at + answer.latency_ms / 1e3 <= span
    ]
    refused = [answer for answer in run.answers if answer.status in REFUSALS]
    goodput = len(within) / span / run.peak
    share = _first_share(within)
    refusal = _latency(refused, 0.99)
    settled = run.memory_mb[len(run.memory_mb) // 3 :] or [0.0]
    growth = settled[-1] - settled[0]
    return [
        "## Overload: 3 times the peak, two callers of equal rights, one sends 2 of 3",
        "",
        _overload_text(run, span, refused),
        *_GOAL_HEAD,
        _goal("goodput >= 90 % of the peak", f"{goodput:.1%}", is_met=goodput >= 0.9),
        _goal("refusal <= 50 ms (p99)", f"{refusal:.1f} ms", is_met=refusal <= 50.0),
        _goal(
            "shares of the callers within 5 % of equal",
            f"{share:.1%} : {1 - share:.1%}",
            is_met=abs(share - 0.5) <= 0.025,
        ),
        _goal(
            "memory flat (<= 5 % in the last two thirds)",
            f"{growth:+.1f} MB",
            is_met=growth <= 0.05 * settled[0],
        ),
    ]


def _first_share(answers: Sequence[Answer]) -> float:
    return sum(answer.key == 0 for answer in answers) / max(1, len(answers))


def _overload_text(run: OverloadRun, span: float, refused: Sequence[Answer]) -> str:
    good = [answer for answer in run.answers if answer.status == OK]
    other = [answer for answer in run.answers if answer.status not in (OK, *REFUSALS)]
    late = [answer for answer in good if answer.at > span / 3]
    quick = sum(answer.latency_ms <= 50.0 for answer in refused) / max(1, len(refused))
    settled = run.memory_mb[len(run.memory_mb) // 3]
    return (
        f"Peak of 3 engines with 8 slots of 40 ms: {run.peak:.0f} requests/s. Sent: "
        f"{run.rate:.0f} requests/s for {span:.0f} s, {len(run.answers):,} in all. "
        f"Answered: {len(good):,}, refused: {len(refused):,}, other ends: "
        f"{_statuses(other)}. Answers took p50 {_latency(good, 0.5):.0f}, p99 "
        f"{_latency(good, 0.99):.0f} ms. Refusals took p50 "
        f"{_latency(refused, 0.5):.1f}, p99 {_latency(refused, 0.99):.1f}, at most "
        f"{_latency(refused, 1.0):.0f} ms; {quick:.1%} within 50 ms. Of the answers to "
        f"what was sent in the last two thirds, {_first_share(late):.1%} went to the "
        f"first caller. At the engines, with 24 slots, there were "
        f"{median(run.sent):.0f} requests (median), {max(run.sent):.0f} at most. "
        f"Memory: {run.memory_mb[0]:.0f} MB after 1 s, {settled:.0f} after a third, "
        f"{run.memory_mb[-1]:.0f} at the end."
    )


def outlier_lines(
    rows: Mapping[str, tuple[Sequence[Answer], Sequence[Answer]]],
    own: str,
    state: Mapping[str, float],
) -> list[str]:
    lines = [
        "## 1 of 4 engines 10 times slower, another with 5 % errors, 400 requests/s",
        "",
        "| proxy | p50 / p99 with the two good ones alone, ms "
        "| p50 / p99 with all four, ms | above 100 ms | failed | kinds |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    for name, (alone, answers) in rows.items():
        slow = sum(answer.latency_ms > 100.0 for answer in answers)
        lines.append(
            f"| {name} | {_latency(alone, 0.5):.1f} / {_latency(alone, 0.99):.1f} "
            f"| {_latency(answers, 0.5):.1f} / {_latency(answers, 0.99):.1f} "
            f"| {slow / len(answers):.1%} | {len(_failed(answers))} of {len(answers)} "
            f"| {_statuses(answers)} |"
        )
    alone, answers = rows[own]
    ratio = _latency(answers, 0.99) / _latency(alone, 0.99)
    refused = sum(answer.status in REFUSALS for answer in answers)
    goal = "p99 within 10 % of that with the good ones alone"
    return [
        *lines,
        "",
        f"At the end the gateway had {state['replicas_available']:.0f} replicas available, "
        f"after {state['ejections_total']:.0f} ejections and "
        f"{state['retries_total']:.0f} retries.",
        *_GOAL_HEAD,
        _goal(goal, f"{ratio:.2f} x", is_met=ratio <= 1.1),
        _goal("no total ejection", f"{refused} refused", is_met=refused == 0),
    ]


def document(sections: Sequence[str], begin: datetime, prefix: str) -> str:
    """Return the text of the result, with date, machine and load."""
    seconds = (datetime.now(UTC) - begin).total_seconds()
    load = ", ".join(f"{average:.1f}" for average in os.getloadavg())
    scheduling = f"under `{prefix}`" if prefix else "without a real-time priority"
    return (
        "# Faults, overload and added latency of the gateway\n\n"
        f"{begin:%Y-%m-%d %H:%M} UTC, {platform.machine()}, {os.cpu_count()} cores, "
        f"load at the end {load}; Python {platform.python_version()}; {seconds:.0f} s.\n\n"
        "Open loop, Poisson arrivals, latency from the scheduled moment. Generators, "
        f"engines and proxies run {scheduling}.\n\n" + "\n\n".join(sections) + "\n"
    )
