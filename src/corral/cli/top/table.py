"""One table of the live view: its filter, sort order, selected row and visible rows. No
I/O."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, Protocol, TypeVar

from corral.cli.top.row_order import Order, ordered
from corral.cli.top.styled_text import (
    Cell,
    Line,
    TextColumn,
    TextPart,
    fitted,
    lengths,
    row_line,
    sized,
    title_line,
)


class Keyed(Protocol):
    @property
    def key(self) -> str: ...


R = TypeVar("R", bound=Keyed)


@dataclass
class RowTable(Generic[R]):
    """A table of rows. `key`: the key of the selected row, which stays selected when
    rows are added, removed or moved. `first`: the index of the uppermost visible row.
    """

    columns: Sequence[TextColumn]
    cells: Callable[[R], Sequence[Cell]]
    orders: Mapping[str, Order[R]]
    words: Callable[[R], str] | None = None  # None: the head filters
    by: str = ""
    turned: bool = False
    text: str = ""
    rows: list[R] = field(default_factory=list)
    given: Sequence[R] = ()
    key: str = ""
    cursor: int = 0
    first: int = 0
    # columns only grow, or they would jump about
    needs: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.by = self.by or next(iter(self.orders))

    def take(self, given: Sequence[R]) -> None:
        """Replace the rows of the table by `given`. The row with the selected key stays
        selected."""
        self.given = given
        self._update_rows()

    def filter(self, text: str) -> None:
        self.text = text
        self._update_rows()

    def sort_by_next(self) -> str:
        """Sort by the next of the table's sort orders, and return its name."""
        names = list(self.orders)
        self.by, self.turned = names[(names.index(self.by) + 1) % len(names)], False
        self._update_rows()
        return self.by

    def turn(self) -> None:
        self.turned = not self.turned
        self._update_rows()

    def _update_rows(self) -> None:
        text, search_text_of = self.text.lower(), self.words
        kept_rows = (
            [row for row in self.given if text in search_text_of(row)]
            if text and search_text_of is not None
            else list(self.given)
        )
        self.rows = ordered(kept_rows, self.orders[self.by], turned=self.turned)
        places = {row.key: row_index for row_index, row in enumerate(self.rows)}
        self._select_row(places.get(self.key, self.cursor))

    def move(self, by: int) -> None:
        self._select_row(self.cursor + by)

    def to(self, place: int) -> None:
        """Select the row at this index. The index may be beyond the end."""
        self._select_row(place)

    def _select_row(self, place: int) -> None:
        self.cursor = max(0, min(place, len(self.rows) - 1))
        self.key = self.rows[self.cursor].key if self.rows else ""

    @property
    def chosen(self) -> R | None:
        return self.rows[self.cursor] if self.rows else None

    def lines(self, width: int, height: int, *, marked: bool = True) -> list[Line]:
        """Return the title line and the visible rows; only these rows are converted to
        text. `marked`: highlight the selected row."""
        room = max(1, height - 1)
        self.first = max(0, min(self.first, self.cursor, len(self.rows) - room))
        self.first = max(self.first, self.cursor - room + 1)
        shown_cells = [
            self.cells(row) for row in self.rows[self.first : self.first + room]
        ]
        self.needs = [
            max(column)
            for column in zip(
                self.needs or [0] * len(self.columns),
                *map(lengths, shown_cells),
                strict=True,
            )
        ]
        places = fitted(self.columns, width, self.needs)
        order = self.orders[self.by]
        arrow = "▼" if order.down != self.turned else "▲"
        line_list: list[Line] = [title_line(self.columns, places, order.title, arrow)]
        for row_index, cells in enumerate(shown_cells, start=self.first):
            line = row_line(self.columns, cells, places)
            chosen = [
                TextPart(text_part.text, "chosen") for text_part in sized(line, width)
            ]
            line_list.append(chosen if marked and row_index == self.cursor else line)
        return line_list

    def at(self, y: int) -> int | None:
        """Return the index of the row that is drawn on line `y`; None if there is no
        row."""
        row_index = self.first + y - 1
        return row_index if y > 0 and row_index < len(self.rows) else None


AnyListing = RowTable[Any]
