"""Draws a figure as SVG: lines with their bands, points or bars, on axes whose ticks
are round numbers."""

from collections.abc import Iterator
from html import escape
from typing import Final

from corral.plan.report import Figure, FigureSeries, TableColumn
from corral.plan.ticks import Axis, axis_of, mark_text

WIDTH: Final = 720
HEIGHT: Final = 280
# --c0 to --c5
LIGHT: Final = ("#0b7285", "#e8590c", "#5f3dc4", "#2b8a3e", "#c2255c", "#495057")
BAR: Final = 26  # of its height, one bar with its distance to the next
NAMES: Final = 200  # of the width, for the names of bars


def svg(figure: Figure) -> str:
    """Return the figure as SVG for a page that defines the colours. If the figure has
    several series, a legend follows it."""
    drawn = f'<svg role="img" aria-label="{escape(figure.title)}" viewBox="{_view_box(figure)}">'
    return f'<div class="wide">{drawn}{_draw_plot(figure)}</svg></div>{_render_legend(figure)}'


def picture(figure: Figure) -> str:
    """Return the figure as an SVG file of its own, with a white background and its own
    colours."""
    colours = "".join(
        f"--c{colour_index}:{line_colour};"
        for colour_index, line_colour in enumerate(LIGHT)
    )
    style = f"svg{{--ink:#212529;--grid:#dee2e6;background:#fff;font-family:sans-serif;{colours}}}"
    names = "".join(
        f'<text x="8" y="{16 + 16 * series_index}" font-size="12" fill="{colour(series_index)}">'
        f"{escape(figure_series.name)}</text>"
        for series_index, figure_series in enumerate(figure.series)
    )
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="{_view_box(figure)}" '
        f'width="{WIDTH + 90}">'
        f"<style>{style}</style>{_draw_plot(figure)}{names}</svg>\n"
    )


def _view_box(figure: Figure) -> str:
    height = BAR * len(figure.series) if figure.kind == "bars" else HEIGHT
    return f"-64 -22 {WIDTH + 90} {height + 66}"


def _draw_plot(figure: Figure) -> str:
    if figure.kind == "bars":
        return "".join(_draw_bars(figure))
    ys = [y for sery in figure.series for _, y in sery.points]
    ys += [y for sery in figure.series for y in (*sery.low, *sery.high)]
    down = axis_of(ys, is_log=figure.y_is_log)
    across = _horizontal_axis(
        [x for sery in figure.series for x, _ in sery.points], is_log=figure.x_is_log
    )
    lines = (
        _draw_series(series_index, figure_series, figure, across, down)
        for series_index, figure_series in enumerate(figure.series)
    )
    axes = f"{''.join(_draw_horizontal_grid(down))}{''.join(_draw_vertical_grid(figure, across))}"
    return f"{axes}{''.join(lines)}{_draw_axis_titles(figure.x, figure.y)}"


def _horizontal_axis(xs: list[float], *, is_log: bool) -> Axis:
    """Return the horizontal axis. Unlike the vertical axis, it need not begin at 0."""
    axis = axis_of(xs, is_log=is_log)
    if is_log or not xs or min(xs) < 0.5 * max(xs):
        return axis
    return Axis(min(xs), max(xs)) if max(xs) > min(xs) else axis


def _draw_horizontal_grid(down: Axis) -> Iterator[str]:
    for mark in down.marks():
        y = HEIGHT * (1 - down.place(mark))
        yield f'<line x1="0" y1="{y:.1f}" x2="{WIDTH}" y2="{y:.1f}" stroke="var(--grid)"/>'
        yield _draw_text(-6, y + 4, mark_text(mark), "end")


def _draw_vertical_grid(figure: Figure, across: Axis) -> Iterator[str]:
    for mark, mark_label in figure.x_marks or [
        (mark, mark_text(mark)) for mark in across.marks()
    ]:
        x = WIDTH * across.place(mark)
        if 0 <= x <= WIDTH:
            yield f'<line x1="{x:.1f}" y1="0" x2="{x:.1f}" y2="{HEIGHT}" stroke="var(--grid)"/>'
            yield _draw_text(x, HEIGHT + 16, mark_label, "middle")


def _draw_text(x: float, y: float, text: str, anchor: str) -> str:
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" font-size="12" '
        f'text-anchor="{anchor}">{escape(text)}</text>'
    )


def _draw_axis_titles(x: TableColumn, y: TableColumn) -> str:
    return _draw_text(WIDTH, HEIGHT + 34, _axis_title(x), "end") + _draw_text(
        -58, -10, _axis_title(y), "start"
    )


def _axis_title(column: TableColumn) -> str:
    return f"{column.name} ({column.unit})" if column.unit else column.name


def _draw_series(
    at: int, series: FigureSeries, figure: Figure, across: Axis, down: Axis
) -> str:
    def put(x: float, y: float) -> str:
        return f"{WIDTH * across.place(x):.1f},{HEIGHT * (1 - down.place(y)):.1f}"

    if figure.kind == "points":
        spots = (put(x, y).split(",") for x, y in series.points)
        return "".join(
            f'<circle cx="{x}" cy="{y}" r="2.5" fill="{colour(at)}" fill-opacity="0.6"/>'
            for x, y in spots
        )
    line = " ".join(put(x, y) for x, y in series.points)
    band = ""
    if series.low:
        upper = [
            put(x, y) for (x, _), y in zip(series.points, series.high, strict=True)
        ]
        lower = [put(x, y) for (x, _), y in zip(series.points, series.low, strict=True)]
        edge = " ".join([*upper, *reversed(lower)])
        band = f'<polygon points="{edge}" fill="{colour(at)}" fill-opacity="0.15"/>'
    return f'{band}<polyline fill="none" stroke="{colour(at)}" stroke-width="2" points="{line}"/>'


def _draw_bars(figure: Figure) -> Iterator[str]:
    """Draw one bar for each series, one below the other, with the names of the series
    to their left."""
    bar_values = [[y for _, y in sery.points] for sery in figure.series]
    axis = axis_of(
        [y for series_values in bar_values for y in series_values], is_log=False
    )
    deep = BAR * len(figure.series)

    def across(value: float) -> float:
        return NAMES + (WIDTH - NAMES) * axis.place(value)

    for mark in axis.marks():
        x = across(mark)
        ink = "var(--ink)" if mark == 0 and axis.low < 0 else "var(--grid)"
        yield f'<line x1="{x:.1f}" y1="0" x2="{x:.1f}" y2="{deep}" stroke="{ink}"/>'
        yield _draw_text(x, deep + 16, mark_text(mark), "middle")
    for bar_index, figure_series in enumerate(figure.series):
        bar_start, bar_end = sorted(
            (
                bar_values[bar_index][0],
                bar_values[bar_index][1] if len(bar_values[bar_index]) > 1 else 0.0,
            )
        )
        yield (
            f'<rect x="{across(bar_start):.1f}" y="{bar_index * BAR + 4}" '
            f'width="{across(bar_end) - across(bar_start):.1f}" height="{BAR - 8}" '
            f'fill="{colour(0)}"/>'
        )
        yield _draw_text(
            NAMES - 8, bar_index * BAR + BAR / 2 + 4, figure_series.name, "end"
        )
    yield _draw_text(WIDTH, deep + 34, _axis_title(figure.y), "end")


def _render_legend(figure: Figure) -> str:
    if figure.kind == "bars" or len(figure.series) < 2:
        return ""
    return (
        "<p>"
        + " &nbsp; ".join(
            f'<b style="color:{colour(series_index)}">{escape(figure_series.name)}</b>'
            for series_index, figure_series in enumerate(figure.series)
        )
        + "</p>"
    )


def colour(at: int) -> str:
    """Return the page's colour for a series by its number, from 0."""
    return f"var(--c{at % len(LIGHT)})"
