"""Lines are exactly as wide as the terminal, whatever stands in them."""

from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from corral.cli.top import gpus, jobs, nodes
from corral.cli.top.styled_text import (
    GAP,
    TextColumn,
    TextPart,
    bar,
    fitted,
    plain,
    row_line,
    sized,
    title_line,
    wrapped,
)

TABLES = (nodes.COLUMNS, gpus.COLUMNS, jobs.COLUMNS)
texts = st.text(
    st.characters(codec="utf-8", exclude_categories=["C", "Zl", "Zp"]), max_size=40
)


@given(columns=st.sampled_from(TABLES), width=st.integers(1, 400), data=st.data())
def test_columns_fit_any_width_and_what_may_not_leave_stays(
    columns: tuple[TextColumn, ...], width: int, data: st.DataObject
) -> None:
    needs = data.draw(
        st.lists(st.integers(0, 60), min_size=len(columns), max_size=len(columns))
    )
    places = fitted(columns, width, needs)
    assert places == sorted(places)
    assert sum(wide for _, wide in places) + GAP * (len(places) - 1) <= width
    left = {at for at in range(len(columns))} - {at for at, _ in places}
    if any(columns[at].goes == 0 for at in left):
        assert all(columns[at].goes == 0 for at, _ in places), (
            "the dispensable leave first"
        )
    if left and len(places) > 1:
        assert max(columns[at].goes for at, _ in places) <= min(
            columns[at].goes for at in left
        )


def test_every_table_has_what_matters_on_80_columns() -> None:
    for columns, wanted in (
        (
            nodes.COLUMNS,
            {"NODE", "STATE", "USED", "GPUS", "BUSY", "POWER", "HEAT", "NOTE"},
        ),
        (gpus.COLUMNS, {"NODE", "GPU", "BUSY", "MEM", "POWER", "HEAT", "JOB"}),
        (jobs.COLUMNS, {"ID", "NAME", "STATE", "GPUS", "TIME", "BUSY", "WHERE OR WHY"}),
    ):
        assert wanted <= {columns[at].title for at, _ in fitted(columns, 80)}
        assert len(fitted(columns, 140)) == len(columns)


@given(cell=st.lists(st.builds(TextPart, texts), max_size=4), width=st.integers(0, 60))
def test_a_cell_is_exactly_as_wide_as_its_column(
    cell: list[TextPart], width: int
) -> None:
    for right in (False, True):
        assert (
            sum(cell_len(part.text) for part in sized(cell, width, right=right))
            == width
        )
    whole = sum(cell_len(part.text) for part in cell)
    if whole <= width:
        assert plain(sized(cell, width)).strip() == plain(cell).strip()


@given(text=texts, width=st.integers(4, 40), most=st.integers(1, 4))
def test_words_are_wrapped_and_what_is_left_out_is_marked(
    text: str, width: int, most: int
) -> None:
    lines = wrapped(text, width, most)
    assert len(lines) <= most
    assert all(cell_len(line) <= width for line in lines)


def test_what_is_cut_off_ends_in_an_ellipsis() -> None:
    assert wrapped("one two three four", 9, 1) == ["one two…"]
    assert wrapped("one two three four", 9, 3) == ["one two", "three", "four"]
    assert plain(sized([TextPart("abcdef")], 4)) == "abc…"


def test_the_sorted_column_is_marked_and_numbers_stand_right() -> None:
    columns = (TextColumn("NAME", 6), TextColumn("GPUS", 6, right=True))
    places = fitted(columns, 14)
    assert plain(title_line(columns, places, "GPUS", "▼")) == "NAME     ▼GPUS"
    assert (
        plain(row_line(columns, ([TextPart("a")], [TextPart("16")]), places))
        == "a           16"
    )


@given(part=st.floats(-1, 2), width=st.integers(1, 20))
def test_a_bar_has_its_width(part: float, width: int) -> None:
    drawn = bar(part, width)
    assert len(drawn) == width
    assert drawn.startswith("█" * int(max(0.0, min(1.0, part)) * width))
    assert bar(0.0, width).strip() == ""
    assert bar(1.0, width) == "█" * width
