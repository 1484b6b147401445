"""A report as a page: whole without anything from elsewhere, with marks that people
read."""

import json
from datetime import date
from math import inf, isclose, nan
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from corral.plan.page import answer_text, cell_text, page
from corral.plan.plot import picture, svg
from corral.plan.report import (
    Figure,
    FigureSeries,
    PlannerReport,
    ReportFigure,
    ReportTable,
    TableColumn,
    columns,
)
from corral.plan.text import brief
from corral.plan.ticks import axis_of, mark_text, number_text

LINES = Figure(
    title="a <figure>",
    x=TableColumn(name="GPUs"),
    y=TableColumn(name="step", unit="s"),
    series=(
        FigureSeries(
            name="one", points=((1.0, 2.0), (8.0, 4.0)), low=(1.0, 3.0), high=(3.0, 5.0)
        ),
        FigureSeries(name="two", points=((1.0, 1.0), (8.0, 9.0))),
    ),
)


def parsed(figure: Figure) -> ElementTree.Element:
    drawn = svg(figure)
    return ElementTree.fromstring(
        drawn[drawn.index("<svg") : drawn.index("</svg>") + 6]
    )


def test_a_report_is_one_page_with_all_that_it_says() -> None:
    report = PlannerReport(
        title="70B on <8> GPUs",
        verdict="It fits.",
        answers=(
            ReportFigure(
                name="step time", value=1.234, unit="s", band=0.08, note="so often"
            ),
        ),
        tables=(
            ReportTable(
                title="parts",
                columns=columns("part", ("size", "GB")),
                rows=(("w", 1.5),),
            ),
        ),
        figures=(LINES,),
        assumed=("batch 8",),
        sources=("a book",),
        warnings=("mind this",),
    )
    told = page(report)
    for text in (
        "70B on &lt;8&gt; GPUs",
        "It fits.",
        "1.23 s \u00b1 8 %",
        "size (GB)",
        "mind this",
    ):
        assert text in told
    for text in ("<th>w</th><td>1.50</td>", "batch 8", "a book", "a &lt;figure&gt;"):
        assert text in told
    assert "<script" not in told
    assert "http" not in told


def test_a_bar_of_two_points_lies_between_them() -> None:
    spans = Figure(
        title="spans",
        x=TableColumn(name=""),
        y=TableColumn(name=""),
        kind="bars",
        series=(
            FigureSeries(name="whole", points=((0, 10.0),)),
            FigureSeries(name="half", points=((0, 10.0), (0, 5.0))),
        ),
    )
    whole, half = parsed(spans).findall("rect")
    assert float(half.attrib["width"]) == pytest.approx(
        float(whole.attrib["width"]) / 2, abs=0.2
    )


def test_a_report_is_json_whatever_was_computed() -> None:
    data = {
        "day": date(2026, 1, 2),
        "endless": inf,
        "series": LINES.series,
        "by": {1: (2.0, None)},
    }
    told = PlannerReport(title="t", verdict="", answers=(), data=data).as_data()
    assert json.loads(json.dumps(told, allow_nan=False)) == told
    assert told["data"]["day"] == "2026-01-02"
    assert told["data"]["endless"] is None
    assert told["data"]["by"] == {"1": [2.0, None]}
    assert told["data"]["series"][0]["name"] == "one"


def test_lines_have_their_band_and_a_legend() -> None:
    drawn = parsed(LINES)
    assert len(drawn.findall("polyline")) == 2
    assert len(drawn.findall("polygon")) == 1
    assert svg(LINES).endswith("two</b></p>")


def test_a_picture_of_its_own_has_its_colours_and_names() -> None:
    drawn = ElementTree.fromstring(picture(LINES))
    space = "{http://www.w3.org/2000/svg}"
    assert "--c1:" in (drawn.findtext(f"{space}style") or "")
    assert {"one", "two"} <= {one.text for one in drawn.findall(f"{space}text")}


def test_bars_begin_at_the_line_of_nothing_and_lie_below_each_other() -> None:
    bars = Figure(
        title="bars",
        x=TableColumn(name=""),
        y=TableColumn(name=""),
        kind="bars",
        series=(
            FigureSeries(name="up", points=((0, 3.0),)),
            FigureSeries(name="down", points=((0, -2.0),)),
        ),
    )
    up, down = parsed(bars).findall("rect")
    foot = float(down.attrib["x"]) + float(down.attrib["width"])
    assert isclose(foot, float(up.attrib["x"]), abs_tol=0.2)
    assert float(down.attrib["y"]) > float(up.attrib["y"]) + float(up.attrib["height"])


def test_bars_are_alike_and_the_line_of_nothing_is_seen_where_it_is_crossed() -> None:
    bars = Figure(
        title="bars",
        x=TableColumn(name=""),
        y=TableColumn(name=""),
        kind="bars",
        series=(
            FigureSeries(name="up", points=((0, 3.0),)),
            FigureSeries(name="down", points=((0, -2.0),)),
        ),
    )
    drawn = parsed(bars)
    assert len({bar.attrib["fill"] for bar in drawn.findall("rect")}) == 1
    inked = [
        line for line in drawn.findall("line") if line.attrib["stroke"] == "var(--ink)"
    ]
    up, _ = drawn.findall("rect")
    assert [line.attrib["x1"] for line in inked] == [up.attrib["x"]]


def test_a_long_cell_takes_several_lines_and_a_short_one_does_not() -> None:
    rows = (("a", "short"), ("b", "word " * 20))
    shown = page(
        PlannerReport(
            title="t",
            verdict="",
            answers=(),
            tables=(
                ReportTable(title="why", columns=columns("GPU", "why"), rows=rows),
            ),
        )
    )
    assert '<td class="word">short</td>' in shown
    assert '<td class="word long">word word' in shown


@given(st.lists(st.floats(-1e12, 1e12), min_size=1, max_size=20), st.booleans())
def test_an_axis_holds_its_values_and_has_a_few_round_marks(
    values: list[float], is_log: bool
) -> None:
    shown = [abs(value) + 1e-3 for value in values] if is_log else values
    axis = axis_of(shown, is_log=is_log)
    assert all(-1e-9 <= axis.place(value) <= 1 + 1e-9 for value in shown)
    assert 2 <= len(axis.marks()) <= 9
    assert all(-1e-9 <= axis.place(mark) <= 1 + 1e-9 for mark in axis.marks())


@pytest.mark.parametrize(
    ("value", "text"),
    [(0.25, "0.25"), (4_000, "4,000"), (40_000, "40k"), (1.5e9, "1.5G"), (0, "0")],
)
def test_a_mark_is_short(value: float, text: str) -> None:
    assert mark_text(value) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [(0.01234, "0.012"), (1.2345, "1.23"), (71.405, "71.4"), (1_140.4, "1,140"), (28_467, "28,467"),
     (2e-6, "2e-06"), (300.0, "300"), (99.97, "100"), (9.996, "10.0"), (0.9996, "1.00")],
)  # fmt: skip
def test_a_number_has_the_digits_that_say_something(value: float, text: str) -> None:
    assert number_text(value) == text


def test_a_counted_answer_has_no_band() -> None:
    assert answer_text(ReportFigure(name="nodes", value=32)) == "32"


def test_a_band_has_one_unit_with_its_number() -> None:
    even = ReportFigure(name="step", value=2.0, unit="s", band=0.06)
    assert answer_text(even) == "2.00 s \u00b1 6 %"
    uneven = ReportFigure(
        name="failures", value=2.9, unit="h", band=0.97, low=0.75, high=5.71
    )
    assert answer_text(uneven) == "2.90 h (0.750 to 5.71)"
    # 9 % of 60 % are 5.4 points, and no share is above 100 %
    share = ReportFigure(name="load", value=60.0, unit="%", band=0.09)
    assert answer_text(share) == "60.0 % (54.6 to 65.4)"
    assert (
        answer_text(ReportFigure(name="load", value=95.0, unit="%", band=0.1))
        == "95.0 % (85.5 to 100)"
    )


def test_what_never_ends_is_said_in_a_word() -> None:
    assert [cell_text(value) for value in (inf, -inf, nan, 1234.0)] == [
        "infinite",
        "",
        "",
        "1,234",
    ]


@pytest.mark.parametrize(
    ("value", "text"),
    [(0.125, "0.125"), (4.916, "4.916"), (58_229.17, "58,229"), (0.7, "0.7")],
)
def test_an_assumption_has_four_digits_at_the_most(value: float, text: str) -> None:
    assert brief(value) == text
