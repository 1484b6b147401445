"""`corral top --once`: the content of the live view as plain text."""

from collections.abc import Sequence
from typing import Final

from corral.cli.printing import note, say
from corral.cli.top import jobs, nodes
from corral.cli.top.feed import Feed
from corral.cli.top.header import header
from corral.cli.top.styled_text import (
    TextColumn,
    fitted,
    lengths,
    plain,
    row_line,
    title_line,
)
from corral.cli.top.table import AnyListing, RowTable

ROWS: Final = 20  # of each table


def show(feed: Feed, width: int, rows: int) -> None:
    """Print the header, then the nodes, those with problems first, then the jobs."""
    top_state, now = feed.known, feed.wall()
    for line in header(top_state, width, now)[:2]:
        say(plain(line))
    warnings = top_state.status.warnings if top_state.status is not None else []
    for warning in warnings:
        note(f"warning: {warning.text}")
    node_table: AnyListing = RowTable(
        nodes.COLUMNS, nodes.cells, nodes.ORDERS, by="trouble"
    )
    node_table.take(nodes.rows(top_state))
    _print_table(node_table, nodes.COLUMNS, width, rows, "nodes: corral node ls")
    work: AnyListing = RowTable(jobs.COLUMNS, jobs.cells, jobs.ORDERS)
    work.take(jobs.rows(top_state, now))
    _print_table(
        work, jobs.COLUMNS, width, rows, "jobs: corral ps", more=top_state.more
    )


def _print_table(
    listing: AnyListing,
    columns: Sequence[TextColumn],
    width: int,
    rows: int,
    rest: str,
    *,
    more: bool = False,
) -> None:
    if not listing.rows:
        return
    say()
    shown_cells = [listing.cells(row) for row in listing.rows[:rows]]
    needed_widths = [
        max(column) for column in zip(*map(lengths, shown_cells), strict=True)
    ]
    places = fitted(columns, width, needed_widths)
    for line in (
        title_line(columns, places),
        *(row_line(columns, row_texts, places) for row_texts in shown_cells),
    ):
        say(plain(line))
    left_out = len(listing.rows) - len(shown_cells)
    if left_out or more:
        note(f"there are {'' if more else f'{left_out} '}more {rest}")
