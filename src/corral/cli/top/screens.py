"""Screens that open above the tables: one job, the help, a question."""

from collections.abc import Callable
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.screen import ModalScreen, Screen

from corral.cli.top import key_bindings
from corral.cli.top.canvas import Canvas
from corral.cli.top.job_feed import JobFeed, JobSource
from corral.cli.top.job_page import page
from corral.cli.top.styled_text import Line, TextPart, sized


class JobScreen(Screen[None]):
    """The screen of one job, updated while it is open."""

    CSS = "#keys { height: 1; }"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding(key.keys, key.action, key.help, show=False)
        for key in key_bindings.JOB
        if key.action != "quit"
    ]

    def __init__(
        self, client: JobSource, id: str, cancel: Callable[[str, str], None]
    ) -> None:
        """Create the screen of the job `id`. `cancel` asks the user whether to cancel
        the job with this id and name."""
        super().__init__()
        self.feed = JobFeed(client, id)
        self._cancel = cancel

    def compose(self) -> ComposeResult:
        yield Canvas(self._render_page, id="page")
        yield Canvas(self._keys, id="keys")

    def on_mount(self) -> None:
        self.run_worker(self.feed.run(self._redraw_page), exclusive=True)

    def _redraw_page(self) -> None:
        self.query_one("#page", Canvas).renew()

    def _render_page(self, width: int, height: int) -> list[Line]:
        return page(self.feed.known, width, height, self.feed.wall())

    def _keys(self, width: int, height: int) -> list[Line]:
        return [sized(key_bindings.footer(key_bindings.JOB, ""), width)]

    def action_leave(self) -> None:
        self.dismiss()

    def action_cancel(self) -> None:
        job = self.feed.known.job
        if job is not None:
            self._cancel(job.id, job.name)

    def action_help(self) -> None:
        self.app.push_screen(Help())


class Help(ModalScreen[None]):
    """The screen that lists every key."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,question_mark,enter,space", "leave", "back", show=False)
    ]

    def compose(self) -> ComposeResult:
        yield Canvas(self._lines, id="help")

    def _lines(self, width: int, height: int) -> list[Line]:
        return [sized(line, width) for line in key_bindings.help_lines()]

    def action_leave(self) -> None:
        self.dismiss()


class Confirm(ModalScreen[bool]):
    """A question to the user. The key y agrees. Enter does not agree, because it is
    easily pressed by mistake."""

    CSS = """
    Confirm { align: center middle; }
    #question { width: 60; height: 4; border: round $foreground; padding: 0 1; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("y", "answer(True)", "yes", show=False),
        Binding("n,escape,q,enter", "answer(False)", "no", show=False),
    ]

    def __init__(self, question: str) -> None:
        super().__init__()
        self._question = question

    def compose(self) -> ComposeResult:
        with Vertical(id="question"):
            yield Canvas(self._lines, id="words")

    def _lines(self, width: int, height: int) -> list[Line]:
        answers = [TextPart("y", "title"), TextPart(" yes    ", "dim")]
        answers += [TextPart("n", "title"), TextPart(" no", "dim")]
        return [sized(line, width) for line in ([TextPart(self._question)], answers)]

    def action_answer(self, yes: bool) -> None:
        self.dismiss(yes)
