"""The textual application of `corral top`: keys and timers around content that pure
functions draw."""

from typing import ClassVar, Final, Protocol

from textual import events
from textual.app import App, ComposeResult
from textual.binding import Binding, BindingType
from textual.widgets import Input

from corral.cli.top import gpus, jobs, key_bindings, nodes
from corral.cli.top.canvas import Canvas
from corral.cli.top.feed import MOST_JOBS, PAGE, Feed, FeedClient, JobsQuery
from corral.cli.top.header import LINES, header
from corral.cli.top.job_feed import JobSource
from corral.cli.top.screens import Confirm, Help, JobScreen
from corral.cli.top.styled_text import Line, TextPart, sized
from corral.cli.top.table import AnyListing, RowTable
from corral.domain.errors import CorralError

TITLES: Final = {"nodes": "nodes", "gpus": "GPUs", "jobs": "jobs"}
BESIDE: Final = {"nodes": "jobs", "jobs": "nodes"}  # tables that are shown together
LEAST_SECOND: Final = 6  # lines that the lower of them has at least
NEAR: Final = 20  # rows before the end of what is listed: more are asked for
SAID_SECONDS: Final = 6.0  # that what a key came to is shown


class Actor(FeedClient, JobSource, Protocol):
    """Methods of `corral.AsyncClient` that the live view needs."""

    async def cancel(self, job: str) -> object: ...


def bindings(table: tuple[key_bindings.Key, ...]) -> list[BindingType]:
    """Return the textual bindings of the keys. Tab has priority, because textual would
    move the focus with it."""
    return [
        Binding(key.keys, key.action, key.help, show=False, priority=key.keys == "tab")
        for key in table
    ]


class Top(App[None]):
    """The textual application: the tables of nodes, GPUs and jobs."""

    CSS = f"""
    #header {{ height: {LINES}; }}
    #footer {{ height: 1; }}
    #filter {{ height: 1; border: none; padding: 0; display: none; }}
    #filter.open {{ display: block; }}
    """
    BINDINGS: ClassVar[list[BindingType]] = bindings(key_bindings.TABLES)
    ENABLE_COMMAND_PALETTE = False

    def __init__(self, client: Actor, feed: Feed | None = None) -> None:
        super().__init__(ansi_color=True)  # the terminal's own colours, light or dark
        self.client = client
        self.feed = feed or Feed(client)
        self.said, self._said_at = "", 0.0
        self.tables: dict[str, AnyListing] = {
            "nodes": RowTable(
                nodes.COLUMNS, nodes.cells, nodes.ORDERS, lambda row: row.words
            ),
            "gpus": RowTable(
                gpus.COLUMNS, gpus.cells, gpus.ORDERS, lambda row: row.words
            ),
            "jobs": RowTable(jobs.COLUMNS, jobs.cells, jobs.ORDERS),
        }
        self.shown = "nodes"
        self._made_of: dict[str, tuple[object, ...]] = {}  # the rows of each table

    def compose(self) -> ComposeResult:
        yield Canvas(self._render_header, id="header")
        yield Canvas(self._table, id="table")
        yield Input(
            placeholder="part of a name; Enter keeps it, Esc takes it away",
            id="filter",
            compact=True,
        )
        yield Canvas(self._render_footer, id="footer")

    def on_mount(self) -> None:
        self.query_one("#filter", Input).disabled = True
        self.run_worker(self.feed.run(self.renew), exclusive=True, group="feed")
        self.set_interval(1.0, self._refresh_header)

    # -- what is drawn ---------------------------------------------------------------------------

    @property
    def table(self) -> AnyListing:
        return self.tables[self.shown]

    def renew(self) -> None:
        """Update the visible table from the newest answers of the head; other tables
        are updated when they are opened. Rows are built again only from new answers; in
        between, only the durations of jobs advance."""
        top_state, now = self.feed.known, self.feed.wall()
        answers = (top_state.status, top_state.gpus, top_state.jobs)
        previous_answers = self._made_of.get(self.shown, (None,) * len(answers))
        is_new = any(
            answer is not previous_answer
            for answer, previous_answer in zip(answers, previous_answers, strict=True)
        )
        self._made_of[self.shown] = answers
        if self.shown in BESIDE:
            self.tables["jobs"].take(jobs.rows(top_state, now))
        if is_new and self.shown in BESIDE:
            self.tables["nodes"].take(nodes.rows(top_state))
        elif is_new:
            self.table.take(gpus.rows(top_state))
        self.redraw()

    def redraw(self) -> None:
        for canvas in self.screen_stack[0].query(Canvas):
            canvas.renew()

    def _refresh_header(self) -> None:
        """Redraw the header, so that times advance even without new data."""
        if self.said and self.feed.clock() - self._said_at > SAID_SECONDS:
            self.said = ""
        for canvas in self.screen_stack[0].query("#header").results(Canvas):
            canvas.renew()  # none, while the view closes

    def tell(self, text: str) -> None:
        self.said, self._said_at = text, self.feed.clock()
        self.redraw()

    def _render_header(self, width: int, height: int) -> list[Line]:
        return header(self.feed.known, width, self.feed.wall(), self.said)

    def _table(self, width: int, height: int) -> list[Line]:
        """Return the lines of the visible table. If there is room, the lines of a
        second table follow."""
        own_rows = len(self.table.rows) + 1
        second = self.tables.get(BESIDE.get(self.shown, ""))
        if second is None or not second.rows or height - own_rows - 1 < LEAST_SECOND:
            return self.table.lines(width, height)
        below = second.lines(width, height - own_rows - 1, marked=False)
        return [*self.table.lines(width, own_rows), [TextPart("")], *below]

    def _render_footer(self, width: int, height: int) -> list[Line]:
        return [sized(key_bindings.footer(key_bindings.TABLES, self._about()), width)]

    def _about(self) -> str:
        """Return the title: the name of the table, the number of its rows, the filter,
        and the sort order."""
        table, count = self.table, len(self.table.rows)
        more_mark = "+" if self.shown == "jobs" and self.feed.known.more else ""
        which = f"{self.feed.wanted.which} " if self.shown == "jobs" else ""
        cursor_text = f"{table.cursor + 1}/" if count else ""
        text = f" with {table.text!r}" if table.text else ""
        return f"{cursor_text}{count}{more_mark} {which}{TITLES[self.shown]}{text} by {table.by}"

    # -- keys ------------------------------------------------------------------------------------

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Return whether a key may act now. While another screen is open above the
        tables, the keys of the tables do nothing, except the key that quits."""
        is_ours = action in {
            key.action.partition("(")[0] for key in key_bindings.TABLES
        }
        return not is_ours or action == "quit" or len(self.screen_stack) == 1

    def action_table(self, name: str) -> None:
        if self.query_one("#filter", Input).has_class("open"):
            self._close_filter()
        self.shown = name
        self.renew()

    def action_next_table(self) -> None:
        names = list(self.tables)
        self.action_table(names[(names.index(self.shown) + 1) % len(names)])

    def action_move(self, by: int) -> None:
        self.table.move(by)
        self._moved()

    def action_page(self, by: int) -> None:
        self.action_move(by * max(1, self.query_one("#table", Canvas).size.height - 1))

    def action_to(self, place: int) -> None:
        self.table.to(place)
        self._moved()

    def _moved(self) -> None:
        """Request more jobs from the head if the cursor is near the end of the listed
        jobs."""
        jobs_query = self.feed.wanted
        is_near = self.table.cursor >= len(self.table.rows) - NEAR
        if self.shown == "jobs" and self.feed.known.more and is_near:
            if jobs_query.count < MOST_JOBS:
                row_limit = min(MOST_JOBS, len(self.feed.known.jobs) + PAGE)
                self.feed.want(JobsQuery(jobs_query.which, jobs_query.text, row_limit))
            elif self.table.cursor == len(self.table.rows) - 1:
                self.tell(
                    f"the first {MOST_JOBS} are listed; others are found with / and f"
                )
        self.redraw()

    def action_sort(self) -> None:
        self.table.sort_by_next()
        self.redraw()

    def action_turn(self) -> None:
        self.table.turn()
        self.redraw()

    def action_which(self) -> None:
        names = list(jobs.WHICH)
        jobs_query = self.feed.wanted
        which = names[(names.index(jobs_query.which) + 1) % len(names)]
        self.feed.want(JobsQuery(which, jobs_query.text))
        self.action_table("jobs")

    def action_filter(self) -> None:
        line = self.query_one("#filter", Input)
        line.value = self.table.text
        line.disabled = False
        line.add_class("open")
        line.focus()

    def on_input_changed(self, message: Input.Changed) -> None:
        self._apply_filter(message.value)

    def on_input_submitted(self) -> None:
        self._close_filter()

    def _apply_filter(self, text: str) -> None:
        if text == self.table.text:
            return
        self.table.filter(text)
        if self.shown == "jobs":
            self.feed.want(JobsQuery(self.feed.wanted.which, text))
        self.redraw()

    def _close_filter(self) -> None:
        line = self.query_one("#filter", Input)
        line.remove_class("open")
        line.disabled = True
        self.set_focus(None)
        self.redraw()

    def action_leave(self) -> None:
        if self.query_one("#filter", Input).has_class("open"):
            self._close_filter()
        self._apply_filter("")

    def action_open(self) -> None:
        row = self.table.chosen
        if row is None:
            return
        if self.shown == "nodes":
            self.tables["gpus"].filter(f"{row.key.lower()}:")
            self.action_table("gpus")
        elif job := self._job():
            self.push_screen(JobScreen(self.client, job[0], self.ask_to_cancel))

    def _job(self) -> tuple[str, str] | None:
        """Return (id, name) of the job in the selected row, or of the job that holds
        the selected GPU; None without a job."""
        row = self.table.chosen
        if row is None or self.shown == "nodes":
            return None
        if self.shown == "jobs":
            return row.job.id, row.job.name
        id = row.holders.partition(",")[0]
        return (id, row.job or id) if id else None

    def action_cancel(self) -> None:
        if job := self._job():
            self.ask_to_cancel(*job)

    def ask_to_cancel(self, id: str, name: str) -> None:
        def answered(yes: bool | None) -> None:
            if yes:
                self.run_worker(self._cancel(id, name), group="cancel")

        self.push_screen(Confirm(f"cancel {name} ({id})?"), answered)

    async def _cancel(self, id: str, name: str) -> None:
        try:
            await self.client.cancel(id)
        except CorralError as error:
            self.tell(f"{error.message}; {error.hint}" if error.hint else error.message)
            return
        self.feed.hurry()
        self.tell(f"{name} ({id}) is being cancelled")

    def action_help(self) -> None:
        self.push_screen(Help())

    def on_click(self, event: events.Click) -> None:
        if event.widget is self.query_one("#table", Canvas):
            row_index = self.table.at(event.y)
            if row_index is not None:
                self.action_to(row_index)

    def on_mouse_scroll_down(self) -> None:
        self.action_move(3)

    def on_mouse_scroll_up(self) -> None:
        self.action_move(-3)
