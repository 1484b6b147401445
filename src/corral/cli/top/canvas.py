"""The only widget of the live view: it draws lines that a pure function makes,
unchanged."""

from collections.abc import Callable, Sequence
from typing import Final

from rich.segment import Segment
from rich.style import Style
from textual.strip import Strip
from textual.widget import Widget

from corral.cli.top.styled_text import Line

STYLES: Final = {
    "good": Style(color="green"),
    "warn": Style(color="yellow"),
    "bad": Style(color="red", bold=True),
    "dim": Style(dim=True),
    "strong": Style(color="cyan"),
    "title": Style(bold=True),
    "chosen": Style(reverse=True),
}
PLAIN: Final = Style()
Draw = Callable[[int, int], Sequence[Line]]


class Canvas(Widget):
    """Draws the lines that `draw` returns for the width and height of the widget. After
    a refresh `draw` is called again."""

    DEFAULT_CSS = "Canvas { width: 1fr; height: 1fr; }"

    def __init__(self, draw: Draw, *, id: str) -> None:
        super().__init__(id=id)
        self._draw = draw
        self._lines: Sequence[Line] | None = None
        self._drawn_for = (0, 0)

    def renew(self) -> None:
        """Mark the content as changed, and draw it again."""
        self._lines = None
        self.refresh()

    def render_line(self, y: int) -> Strip:
        width, height = self.size
        if self._lines is None or self._drawn_for != (width, height):
            self._lines, self._drawn_for = self._draw(width, height), (width, height)
        line = self._lines[y] if y < len(self._lines) else ()
        base = self.rich_style
        strip = Strip(
            [Segment(text, base + STYLES.get(tone, PLAIN)) for text, tone in line]
        )
        return strip.adjust_cell_length(width, base)
