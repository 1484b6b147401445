"""A page of a simulation that stands alone: its numbers, its waits, and how full the nodes were."""

from collections.abc import Mapping, Sequence
from html import escape
from math import log10
from typing import Any, Final

from corral.replay.replay import Event

WIDTH, HEIGHT, POINTS = 720, 260, 100
LIGHT: Final = ("#0b7285", "#e8590c", "#5f3dc4", "#2b8a3e", "#c2255c", "#495057")
DARK: Final = ("#3bc9db", "#ff922b", "#b197fc", "#69db7c", "#f783ac", "#ced4da")
DECADES: Final = 8  # waits are drawn from 1 s to 10**8 s at the most
MARKS: Final = (
    *((1.0, "1 s"), (10.0, "10 s"), (60.0, "1 min"), (600.0, "10 min"), (3_600.0, "1 h")),
    *((36_000.0, "10 h"), (86_400.0, "1 d"), (864_000.0, "10 d"), (8_640_000.0, "100 d")),
    (86_400_000.0, "1,000 d"),
)


def _colours(ink: str, back: str, band: str, grid: str, lines: Sequence[str]) -> str:
    own = "".join(f"--c{at}:{colour};" for at, colour in enumerate(lines))
    return f":root{{--ink:{ink};--back:{back};--band:{band};--grid:{grid};{own}}}"


STYLE: Final = (
    _colours("#212529", "#fff", "#f1f3f5", "#dee2e6", LIGHT)
    + "@media (prefers-color-scheme:dark){"
    + _colours("#e9ecef", "#15181b", "#23272b", "#3a4046", DARK)
    + "}:root{color-scheme:light dark}body{font:15px system-ui;margin:2rem auto;max-width:64rem;"
    "padding:0 1rem;color:var(--ink);background:var(--back)}"
    "h1{font-size:1.4rem;overflow-wrap:anywhere}h2{font-size:1.1rem;margin-top:2rem}"
    ".wide{overflow-x:auto}svg{width:100%;min-width:34rem;height:auto}svg text{fill:var(--ink)}"
    "table{border-collapse:collapse;font-variant-numeric:tabular-nums}"
    "td,th{padding:.2rem .7rem;text-align:right;white-space:nowrap}"
    "th:first-child{text-align:left}tr:nth-child(even){background:var(--band)}"
)
KINDS: Final = ("start", "preempted", "end", "promise", "failed")
Results = Mapping[str, Mapping[str, Any]]


def event_row(policy: str, event: Event, jobs: Sequence[str]) -> dict[str, Any]:
    """A line of the events' file: `node` and `gpus` of a start, one line a node of the gang. The
    job by its name in the log and its row in order of submission, the node by its place in the
    list of nodes; both from 0."""
    job, kind = jobs[event.job], KINDS[event.kind]
    row = {"policy": policy, "at_s": event.at, "event": kind, "job": job, "row": event.job}
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
        '<meta name="viewport" content="width=device-width">'
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
    rows = {_words(key): [one[key] for one in policies.values()] for key in keys}
    return _table(policies, "", rows)


def _words(key: str) -> str:
    """For example: jct p99 (s), of jct_p99_s."""
    words = key.removesuffix("_s").replace("_", " ").replace("gpu", "GPU")
    return f"{words} (s)" if key.endswith("_s") else words


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
    return f'<div class="wide"><table><tr><th>{corner}</th>{head}</tr>{body}</table></div>'


def _digits(value: float) -> str:
    """At least three digits of a number that is not whole."""
    if isinstance(value, int) or value == 0:
        return f"{value:,.0f}"
    places = 0 if value >= 100 else 1 if value >= 10 else 2 if value >= 1 else 3
    return f"{value:,.{places}f}"


def _waits(policies: Results) -> str:
    longest = max(max(numbers["waits_s"]) for numbers in policies.values())
    decades = min(DECADES, log10(max(600.0, longest)))
    lines = {
        name: [
            (min(1.0, log10(max(1.0, wait)) / decades), point / POINTS)
            for point, wait in enumerate(numbers["waits_s"])
        ]
        for name, numbers in policies.items()
    }
    marks = [(log10(seconds) / decades, word) for seconds, word in MARKS]
    return _plot(lines, [(at, word) for at, word in marks if at <= 1.0])


def _used(policies: Results) -> str:
    lines = {
        name: [
            ((at + 0.5) / len(numbers["used"]), share) for at, share in enumerate(numbers["used"])
        ]
        for name, numbers in policies.items()
    }
    return _plot(lines, [(0.0, "first"), (1.0, "last")])


def _plot(
    lines: Mapping[str, Sequence[tuple[float, float]]], below: Sequence[tuple[float, str]]
) -> str:
    """Lines of points from 0 to 1, and words at places from 0 to 1 below."""
    grid = "".join(
        f'<line x1="{x:.0f}" y1="0" x2="{x:.0f}" y2="{HEIGHT}" stroke="var(--grid)"/>'
        f'<text x="{x:.0f}" y="{HEIGHT + 16}" font-size="12" text-anchor="middle">{word}</text>'
        for at, word in below
        for x in [WIDTH * at]
    ) + "".join(
        f'<line x1="0" y1="{y:.0f}" x2="{WIDTH}" y2="{y:.0f}" stroke="var(--grid)"/>'
        f'<text x="-6" y="{y + 4:.0f}" font-size="12" text-anchor="end">{share} %</text>'
        for share in (100, 75, 50, 25, 0)
        for y in [HEIGHT * (100 - share) / 100]
    )
    drawn = "".join(
        f'<polyline fill="none" stroke="{_colour(at)}" stroke-width="2" points="{_points(line)}"/>'
        for at, line in enumerate(lines.values())
    )
    box = f"-50 -10 {WIDTH + 90} {HEIGHT + 35}"
    return f'<div class="wide"><svg role="img" viewBox="{box}">{grid}{drawn}</svg></div>'


def _points(line: Sequence[tuple[float, float]]) -> str:
    return " ".join(f"{WIDTH * x:.1f},{HEIGHT * (1 - y):.1f}" for x, y in line)


def _colour(at: int) -> str:
    return f"var(--c{at % len(LIGHT)})"
