"""Panels of help in which the text of an option is one paragraph, whatever the line
breaks in its source, and in which empty defaults are not shown."""

from typing import TYPE_CHECKING, Any

from cyclopts.help import HelpEntry, HelpPanel, InlineText
from cyclopts.help.formatters import DefaultFormatter
from rich.text import Text

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions


class FlowingFormatter(DefaultFormatter):
    """The usual panels, with each description as one paragraph."""

    def __call__(
        self, console: "Console", options: "ConsoleOptions", panel: HelpPanel
    ) -> None:
        for entry in panel.entries:
            _join_lines(entry)
        super().__call__(console, options, panel)


def default_text(value: Any) -> str | None:
    """Return the text of an option's default; None if the option is off or empty by
    default, which help does not show."""
    if value is None or value is False or value == "" or value == ():
        return None
    if isinstance(value, float):
        return f"{value:.10g}".replace("e+", "e")
    return str(value)


def _join_lines(entry: HelpEntry) -> None:
    description = entry.description
    if isinstance(description, InlineText):
        text = description.primary_renderable
        if isinstance(text, Text) and "\n" in text.plain:
            description.primary_renderable = Text(" ".join(text.plain.split()))
