"""The command ui: opens the web pages in a browser that is logged in."""

from typing import Annotated

from cyclopts import Parameter

from corral.cli.head_options import Common
from corral.cli.printing import note, print_json, say


def ui(
    *,
    open: Annotated[bool, Parameter(negative="", show_default=False)] = False,
    common: Common = Common(),  # noqa: B008 - frozen
) -> None:
    """Print a link that opens the web pages and logs the browser in. The link works
    once, within 5 minutes.

    Args:
        open: Also open the link in a browser on this machine.
    """
    with common.client() as client:
        login_link = client.create_link()
    if common.json:
        print_json(login_link)
    else:
        say(login_link.url)
        note(
            "the link logs in one browser, once, within 5 minutes; keep it secret "
            "until then"
        )
    if open:
        import webbrowser

        webbrowser.open(login_link.url)
