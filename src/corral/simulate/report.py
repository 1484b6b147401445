"""A page of a simulation that stands alone: its numbers, and how long which part of jobs waited."""

from collections.abc import Mapping, Sequence
from html import escape
from math import log10
from typing import Any, Final

WIDTH, HEIGHT, POINTS = 720, 300, 120
COLOURS: Final = ("#0b7285", "#e8590c", "#5f3dc4", "#2b8a3e", "#c2255c", "#495057")
DECADES: Final = 8  # waits are drawn from 1 s to 10**8 s
STYLE: Final = (
    "body{font:15px system-ui;margin:2rem;color:#212529}"
    "table{border-collapse:collapse}td,th{padding:.2rem .7rem;text-align:right}"
    "th:first-child{text-align:left}tr:nth-child(even){background:#f1f3f5}"
)


def page(answer: Mapping[str, Any], waits: Mapping[str, Sequence[float]]) -> str:
    """HTML without scripts or anything from elsewhere. `waits`: seconds of each job, by policy."""
    policies: Mapping[str, Mapping[str, float]] = answer["policies"]
    names = list(policies)
    rows = "".join(
        f"<tr><th>{key}</th>" + "".join(f"<td>{policies[name][key]:,.2f}</td>" for name in names)
        + "</tr>"
        for key in policies[names[0]]
    )  # fmt: skip
    title = escape(f"{answer['trace']} on {answer['nodes']} nodes, {answer['gpus']} GPUs")
    head = "".join(
        f'<th style="color:{_colour(at)}">{escape(name)}</th>' for at, name in enumerate(names)
    )
    return (
        f"<!doctype html><meta charset=utf-8><title>{title}</title><style>{STYLE}</style>"
        f"<h1>{title}</h1><h2>Share of jobs that waited at most so long</h2>{_plot(waits)}"
        f"<h2>Numbers</h2><table><tr><th></th>{head}</tr>{rows}</table>\n"
    )


def _plot(waits: Mapping[str, Sequence[float]]) -> str:
    grid = "".join(
        f'<line x1="{x}" y1="0" x2="{x}" y2="{HEIGHT}" stroke="#dee2e6"/>'
        f'<text x="{x}" y="{HEIGHT + 16}" font-size="12" text-anchor="middle">1e{decade} s</text>'
        for decade in range(DECADES + 1)
        for x in [WIDTH * decade // DECADES]
    )
    lines = "".join(
        f'<polyline fill="none" stroke="{_colour(at)}" stroke-width="2" points="{_curve(values)}"/>'
        for at, values in enumerate(waits.values())
    )
    return f'<svg viewBox="-30 -10 {WIDTH + 60} {HEIGHT + 35}" width="{WIDTH}">{grid}{lines}</svg>'


def _curve(values: Sequence[float]) -> str:
    ranked, points = sorted(values), []
    for point in range(POINTS + 1):
        wait = ranked[min(len(ranked) - 1, point * len(ranked) // POINTS)]
        x = WIDTH * log10(max(1.0, wait)) / DECADES
        points.append(f"{x:.1f},{HEIGHT * (1 - point / POINTS):.1f}")
    return " ".join(points)


def _colour(at: int) -> str:
    return COLOURS[at % len(COLOURS)]
