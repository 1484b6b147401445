"""Lines of a terminal as values: text with a tone, columns that fit a width. No I/O."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from rich.cells import cell_len, set_cell_size

GAP: Final = 2  # blanks between two columns
ELLIPSIS: Final = "…"


class TextPart(NamedTuple):
    """Some text. `tone`: good, warn, bad, dim, strong, title, chosen, or "" for
    none."""

    text: str
    tone: str = ""


Line = Sequence[TextPart]
Cell = Sequence[TextPart]


@dataclass(frozen=True, slots=True)
class TextColumn:
    """`width` is what it should have, and no less unless it is the only one. The one
    with the highest `goes` leaves first when there is no room; 0 stays. One that
    `grows` takes what is left, up to `most`."""

    title: str
    width: int
    goes: int = 0
    right: bool = False
    grows: bool = False
    most: int = 200


def fitted(
    columns: Sequence[TextColumn], width: int, needs: Sequence[int] = ()
) -> list[tuple[int, int]]:
    """(place, width) of the columns that have room, in their order. All of them, with
    the gaps, are no wider than `width`. `needs`: what the cells of each take; the last
    that grows has all that is left."""
    kept_columns = list(range(len(columns)))

    def needed() -> int:
        return sum(columns[at].width for at in kept_columns) + GAP * (
            len(kept_columns) - 1
        )

    while len(kept_columns) > 1 and needed() > width:
        kept_columns.remove(max(kept_columns, key=lambda at: (columns[at].goes, at)))
    spare_width = width - needed()
    if spare_width < 0:
        return [(kept_columns[0], max(0, width))]
    last = max((at for at in kept_columns if columns[at].grows), default=-1)
    cell_texts = []
    for at in kept_columns:
        text_column = columns[at]
        most = (
            min(text_column.most, needs[at])
            if at < len(needs) and at != last
            else text_column.most
        )
        more = (
            max(0, min(spare_width, most - text_column.width))
            if text_column.grows
            else 0
        )
        spare_width -= more
        cell_texts.append((at, text_column.width + more))
    return cell_texts


def row_line(
    columns: Sequence[TextColumn],
    cells: Sequence[Cell],
    places: Sequence[tuple[int, int]],
) -> list[TextPart]:
    """One line of a table: each cell cut or filled to its column. `places`: as `fitted`
    says."""
    parts: list[TextPart] = []
    for number, (at, wide) in enumerate(places):
        if number:
            parts.append(TextPart(" " * GAP))
        parts += sized(cells[at], wide, right=columns[at].right)
    return parts


def title_line(
    columns: Sequence[TextColumn],
    places: Sequence[tuple[int, int]],
    sorted_by: str = "",
    arrow: str = "",
) -> list[TextPart]:
    """The titles; the one that is sorted by has an arrow before it."""
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
    return [sum(cell_len(part.text) for part in cell) for cell in cells]


def sized(cell: Cell, width: int, *, right: bool = False) -> list[TextPart]:
    """Exactly so wide: cut with an ellipsis, or filled with blanks."""
    length = sum(cell_len(part.text) for part in cell)
    if length <= width:
        blank = TextPart(" " * (width - length))
        return [blank, *cell] if right else [*cell, blank]
    parts: list[TextPart] = []
    width_left = max(0, width - 1)
    for part in cell:
        wide = min(width_left, cell_len(part.text))
        parts.append(TextPart(set_cell_size(part.text, wide), part.tone))
        width_left -= wide
    return [*parts, TextPart(ELLIPSIS[:width])]


def wrapped(text: str, width: int, most: int) -> list[str]:
    """Words in lines of this width, `most` of them; what is left out ends in an
    ellipsis."""
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
    return "".join(part.text for part in line).rstrip()


def bar(part: float, width: int) -> str:
    """A bar of eighths of characters; `part` is from 0 to 1."""
    eighths = round(max(0.0, min(1.0, part)) * width * 8)
    whole, rest = divmod(eighths, 8)
    return ("█" * whole + " ▏▎▍▌▋▊▉"[rest] * bool(rest)).ljust(width)
