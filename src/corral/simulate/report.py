"""A page of a simulation that stands alone: its numbers, its waits, and how full the nodes were."""

from collections.abc import Mapping, Sequence
from html import escape
from math import log10
from typing import Any, Final

from corral.replay.replay import Event

WIDTH, HEIGHT, POINTS = 720, 260, 100
COLOURS: Final = ("#0b7285", "#e8590c", "#5f3dc4", "#2b8a3e", "#c2255c", "#495057")
DECADES: Final = 8  # waits are drawn from 1 s to 10**8 s
STYLE: Final = (
    "body{font:15px system-ui;margin:2rem auto;max-width:64rem;padding:0 1rem;color:#212529}"
    "h1{font-size:1.4rem}h2{font-size:1.1rem;margin-top:2rem}svg{max-width:100%;height:auto}"
    "table{border-collapse:collapse;font-variant-numeric:tabular-nums}"
    "td,th{padding:.2rem .7rem;text-align:right}"
    "th:first-child{text-align:left}tr:nth-child(even){background:#f1f3f5}"
)
KINDS: Final = ("start", "preempted", "end", "promise", "failed")
Results = Mapping[str, Mapping[str, Any]]


def event_row(policy: str, event: Event) -> dict[str, Any]:
    """A line of the events' file: `node` and `gpus` of a start, one line a node of the gang."""
    row = {"policy": policy, "at_s": event.at, "event": KINDS[event.kind], "job": event.job}
    if event.kind == 0:
        return row | {"node": event.node, "gpus": event.gpus, "service_s": event.service}
    return row | {"starts_by_s" if event.kind == 3 else "service_s": event.service}


def curve(waits: Sequence[float]) -> list[float]:
    """The waits at equal shares of all jobs, from the shortest to the longest."""
    ranked = sorted(waits)
    return [ranked[point * (len(ranked) - 1) // POINTS] for point in range(POINTS + 1)]


def page(answer: Mapping[str, Any]) -> str:
    """HTML without scripts or anything from elsewhere."""
    policies: Results = answer["policies"]
    title = escape(f"{answer['trace']} on {answer['nodes']} nodes, {answer['gpus']} GPUs")
    skipped = answer["skipped"] + answer["too_large"]
    left_out = f"<p>{skipped} rows of the log were not replayed.</p>" if skipped else ""
    return (
        f'<!doctype html><html lang="en"><meta charset="utf-8"><title>{title}</title>'
        f"<style>{STYLE}</style><h1>{title}</h1>{left_out}{_legend(policies)}"
        f"<h2>Share of jobs that waited at most so long</h2>{_waits(policies)}"
        f"<h2>Share of GPUs held, from the first submission to the last</h2>{_used(policies)}"
        f"<h2>Numbers</h2>{_numbers(policies)}"
        f"<h2>Mean wait by size, in seconds</h2>{_parts(policies, 'sizes')}"
        f"<h2>Mean wait by queue, in seconds</h2>{_parts(policies, 'queues')}</html>\n"
    )


def _legend(policies: Results) -> str:
    return "<p>" + " &nbsp; ".join(
        f'<b style="color:{_colour(at)}">{escape(name)}</b>' for at, name in enumerate(policies)
    ) + "</p>"  # fmt: skip


def _numbers(policies: Results) -> str:
    first = next(iter(policies.values()))
    keys = [key for key, value in first.items() if isinstance(value, int | float)]
    return _table(policies, "", {key: [one[key] for one in policies.values()] for key in keys})


def _parts(policies: Results, kind: str) -> str:
    first = next(iter(policies.values()))
    rows = {
        f"{label} ({part['jobs']} jobs)": [
            one[kind][label]["wait_mean_s"] for one in policies.values()
        ]
        for label, part in first[kind].items()
    }
    return _table(policies, kind.removesuffix("s"), rows)


def _table(policies: Results, corner: str, rows: Mapping[str, Sequence[float]]) -> str:
    head = "".join(
        f'<th style="color:{_colour(at)}">{escape(name)}</th>' for at, name in enumerate(policies)
    )
    body = "".join(
        f"<tr><th>{escape(label)}</th>" + "".join(f"<td>{_digits(one)}</td>" for one in values)
        + "</tr>"
        for label, values in rows.items()
    )  # fmt: skip
    return f"<table><tr><th>{corner}</th>{head}</tr>{body}</table>"


def _digits(value: float) -> str:
    return f"{value:,}" if isinstance(value, int) else f"{value:,.{0 if value >= 1_000 else 3}f}"


def _waits(policies: Results) -> str:
    lines = {
        name: [
            (log10(max(1.0, wait)) / DECADES, point / POINTS)
            for point, wait in enumerate(numbers["waits_s"])
        ]
        for name, numbers in policies.items()
    }
    return _plot(lines, [f"10^{decade} s" for decade in range(DECADES + 1)])


def _used(policies: Results) -> str:
    lines = {
        name: [
            ((at + 0.5) / len(numbers["used"]), share) for at, share in enumerate(numbers["used"])
        ]
        for name, numbers in policies.items()
    }
    return _plot(lines, ["first", "last"])


def _plot(lines: Mapping[str, Sequence[tuple[float, float]]], below: Sequence[str]) -> str:
    """Lines of points from 0 to 1, and words at equal steps below."""
    steps = len(below) - 1
    grid = "".join(
        f'<line x1="{x:.0f}" y1="0" x2="{x:.0f}" y2="{HEIGHT}" stroke="#dee2e6"/>'
        f'<text x="{x:.0f}" y="{HEIGHT + 16}" font-size="12" text-anchor="middle">{word}</text>'
        for at, word in enumerate(below)
        for x in [WIDTH * at / steps]
    ) + "".join(
        f'<line x1="0" y1="{y:.0f}" x2="{WIDTH}" y2="{y:.0f}" stroke="#dee2e6"/>'
        f'<text x="-6" y="{y + 4:.0f}" font-size="12" text-anchor="end">{share} %</text>'
        for share in (100, 75, 50, 25, 0)
        for y in [HEIGHT * (100 - share) / 100]
    )
    drawn = "".join(
        f'<polyline fill="none" stroke="{_colour(at)}" stroke-width="2" points="{_points(line)}"/>'
        for at, line in enumerate(lines.values())
    )
    box = f"-50 -10 {WIDTH + 90} {HEIGHT + 35}"
    return f'<svg role="img" viewBox="{box}" width="{WIDTH + 90}">{grid}{drawn}</svg>'


def _points(line: Sequence[tuple[float, float]]) -> str:
    return " ".join(f"{WIDTH * x:.1f},{HEIGHT * (1 - y):.1f}" for x, y in line)


def _colour(at: int) -> str:
    return COLOURS[at % len(COLOURS)]
