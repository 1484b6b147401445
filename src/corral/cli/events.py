"""The command events."""

from collections.abc import Iterable
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter
from cyclopts.validators import Number

from corral.cli import arrays
from corral.cli.head_options import Common
from corral.cli.option_types import WholeNumber
from corral.cli.printing import clean, clock_text, print_json, print_json_line, say

if TYPE_CHECKING:
    from corral.wire import api


def events(
    job: str | None = None,
    /,
    *,
    follow: Annotated[
        bool, Parameter(name=["--follow", "-f"], negative="", show_default=False)
    ] = False,
    after: Annotated[WholeNumber, Parameter(validator=Number(gte=0))] = 0,
    common: Common = Common(),  # noqa: B008 - frozen
) -> None:
    """Show the events of one job, or of all jobs.

    Args:
        job: Id of a job, or the name of the newest job of this name; for an array, the
            events of all its jobs (default: all jobs).
        follow: Also print new events as they happen; with a job, until it ends, else
            until Ctrl-C.
        after: Show only events with a number above N; --json prints the numbers. 0: all
            events.
    """
    with common.client() as client:
        chosen = None if job is None else arrays.found(client, job, client.job)

        def tell(event: "api.EventView") -> None:
            if common.json:
                print_json_line(event)
            else:
                several = chosen is None or isinstance(chosen, list)
                of = f" {event.job}" if event.job and several else ""
                say(f"{clock_text(event.at)}{of} {clean(event.text)}")

        event_views: Iterable[api.EventView]
        if isinstance(chosen, list):
            event_views = arrays.events_of(
                common, chosen, tell, follow=follow, after=after
            )
        else:
            event_views = client.events(
                chosen.id if chosen else None, after=after, follow=follow
            )
        if common.json and not follow:
            print_json(
                {"events": [event.model_dump(mode="json") for event in event_views]}
            )
            return
        for event in event_views:
            tell(event)
