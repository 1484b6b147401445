"""Terminal lines as values: text with a tone, and columns that fit a width. No I/O."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from rich.cells import cell_len, set_cell_size

GAP: Final = 2  # blanks between two columns
ELLIPSIS: Final = "…"


class TextPart(NamedTuple):
    """A part of a line. `tone`: good, warn, bad, dim, strong, title, chosen, or "" for
    none."""

    text: str
    tone: str = ""


Line = Sequence[TextPart]
Cell = Sequence[TextPart]


@dataclass(frozen=True, slots=True)
class TextColumn:
    """A column of a table. `width`: its least width, unless it is the only column left.
    `goes`: if there is no room, the column with the highest number is removed first; 0
    is removed last. `grows`: the column takes the width that is left, up to `most`."""

    title: str
    width: int
    goes: int = 0
    right: bool = False
    grows: bool = False
    most: int = 200


def fitted(
    columns: Sequence[TextColumn], width: int, needs: Sequence[int] = ()
) -> list[tuple[int, int]]:
    """Return (index, width) of each column that fits, in order. With the gaps between
    them, the columns are no wider than `width`.

    Args:
        needs: the width that the cells of each column need. The last column that grows
            takes all remaining width, up to its `most`.
    """
    kept_columns = list(range(len(columns)))

    def needed() -> int:
        return sum(
            columns[column_number].width for column_number in kept_columns
        ) + GAP * (len(kept_columns) - 1)

    while len(kept_columns) > 1 and needed() > width:
        kept_columns.remove(max(kept_columns, key=lambda at: (columns[at].goes, at)))
    spare_width = width - needed()
    if spare_width < 0:
        return [(kept_columns[0], max(0, width))]
    last_growing_index = max(
        (
            growing_column
            for growing_column in kept_columns
            if columns[growing_column].grows
        ),
        default=-1,
    )
    cell_texts = []
    for column_index in kept_columns:
        text_column = columns[column_index]
        width_limit = (
            min(text_column.most, needs[column_index])
            if column_index < len(needs) and column_index != last_growing_index
            else text_column.most
        )
        added_width = (
            max(0, min(spare_width, width_limit - text_column.width))
            if text_column.grows
            else 0
        )
        spare_width -= added_width
        cell_texts.append((column_index, text_column.width + added_width))
    return cell_texts


def row_line(
    columns: Sequence[TextColumn],
    cells: Sequence[Cell],
    places: Sequence[tuple[int, int]],
) -> list[TextPart]:
    """Return one line of a table, each cell cut or filled to the width of its column.
    `places`: (index, width) of the columns, from `fitted`."""
    text_parts: list[TextPart] = []
    for number, (column_index, wide) in enumerate(places):
        if number:
            text_parts.append(TextPart(" " * GAP))
        text_parts += sized(
            cells[column_index], wide, right=columns[column_index].right
        )
    return text_parts


def title_line(
    columns: Sequence[TextColumn],
    places: Sequence[tuple[int, int]],
    sorted_by: str = "",
    arrow: str = "",
) -> list[TextPart]:
    """Return the line of column titles. The column by which rows are sorted has an
    arrow before its title."""
    cells = [
        [
            TextPart(
                f"{arrow if column.title == sorted_by else ''}{column.title}", "title"
            )
        ]
        for column in columns
    ]
    return row_line(columns, cells, places)


def lengths(cells: Sequence[Cell]) -> list[int]:
    return [sum(cell_len(text_part.text) for text_part in cell) for cell in cells]


def sized(cell: Cell, width: int, *, right: bool = False) -> list[TextPart]:
    """Return the cell with exactly this width: cut with an ellipsis, or filled with
    blanks."""
    length = sum(cell_len(cell_part.text) for cell_part in cell)
    if length <= width:
        blank = TextPart(" " * (width - length))
        return [blank, *cell] if right else [*cell, blank]
    cut_parts: list[TextPart] = []
    width_left = max(0, width - 1)
    for text_part in cell:
        wide = min(width_left, cell_len(text_part.text))
        cut_parts.append(TextPart(set_cell_size(text_part.text, wide), text_part.tone))
        width_left -= wide
    return [*cut_parts, TextPart(ELLIPSIS[:width])]


def wrapped(text: str, width: int, most: int) -> list[str]:
    """Return the words in at most `most` lines of this width. If words are left out,
    the last line ends in an ellipsis."""
    lines: list[str] = [""]
    for word in text.split():
        joined = f"{lines[-1]} {word}".strip()
        if cell_len(joined) <= width or not lines[-1]:
            lines[-1] = joined
        else:
            lines.append(word)
    cut = [set_cell_size(line, width).rstrip() for line in lines[:most]]
    if len(lines) > most and cut:
        cut[-1] = set_cell_size(cut[-1], max(0, width - 1)).rstrip() + ELLIPSIS
    return cut


def plain(line: Line) -> str:
    return "".join(text_part.text for text_part in line).rstrip()


def bar(part: float, width: int) -> str:
    """Return a bar in steps of an eighth of a character. `part` is from 0 to 1."""
    eighths = round(max(0.0, min(1.0, part)) * width * 8)
    full_blocks, rest = divmod(eighths, 8)
    return ("█" * full_blocks + " ▏▎▍▌▋▊▉"[rest] * bool(rest)).ljust(width)
