"""`corral top`: a live view of the cluster, or a single snapshot of it."""

import os
import sys
from importlib.util import find_spec
from typing import Annotated, Final

from cyclopts import Parameter
from cyclopts.validators import Number

from corral.cli.head_options import MOST_ROWS, Common
from corral.cli.option_types import WholeNumber
from corral.cli.printing import WIDEST, console, print_json
from corral.domain.errors import Unsupported

ROWS: Final = 20
_Flag = Annotated[bool, Parameter(negative="", show_default=False)]


def top(
    *,
    once: _Flag = False,
    rows: Annotated[
        WholeNumber, Parameter(validator=Number(gte=1, lte=MOST_ROWS))
    ] = ROWS,
    no_color: Annotated[
        bool,
        Parameter(name=["--no-color", "--no-colour"], negative="", show_default=False),
    ] = False,
    common: Common = Common(),  # noqa: B008 - frozen
) -> None:
    """Show nodes, GPUs and jobs live; the key ? lists all keys.

    Without a terminal, with --once and with --json the command prints one snapshot.
    NO_COLOR is respected.

    Args:
        once: Print one snapshot as plain text.
        rows: Rows of each table in the snapshot (default: 20).
        no_color: Use no colours; marks and words carry the same information.
    """
    import asyncio

    if common.json:
        asyncio.run(_print_snapshot(common, rows, as_json=True))
    elif once or not (sys.stdin.isatty() and sys.stdout.isatty()):
        asyncio.run(_print_snapshot(common, rows, as_json=False))
    else:
        check_textual()
        with common.client() as client:
            # a head that is not there is refused before a screen opens
            client.newest_events()
        if no_color:
            os.environ["NO_COLOR"] = "1"
        asyncio.run(_run_live_view(common))


def check_textual() -> None:
    """Check that textual is installed.

    Raises: Unsupported if it is not.
    """
    if find_spec("textual") is None:
        raise Unsupported(
            "corral top needs textual, which is not installed here",
            hint="run: pip install 'corral[tui]'; one look without it: corral top --once",
        )


async def _print_snapshot(common: Common, rows: int, *, as_json: bool) -> None:
    from corral.cli.top.feed import Feed, JobsQuery
    from corral.cli.top.snapshot import show

    async with common.async_client() as client:
        feed = Feed(client, wanted=JobsQuery(count=rows))
        await feed.look()
    if as_json:
        print_json(feed.known.as_json())
    else:
        output_console = console()
        # a pipe has no width
        is_full_width = not output_console.is_terminal and "COLUMNS" not in os.environ
        show(feed, WIDEST if is_full_width else output_console.width, rows)


async def _run_live_view(common: Common) -> None:
    from corral.cli.top.app import Top

    async with common.async_client() as client:
        await Top(client).run_async()
