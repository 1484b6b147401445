"""alert ls, test: what stands now, and whether messages reach whom they should."""

from corral.cli.common import Change, Common
from corral.cli.output import clock_text, note, print_json, say, show_table, table

HOW = "to have them sent, write alerts.yaml into the cluster's directory: corral alert --help"


def ls(*, common: Common = Common()) -> None:  # noqa: B008 - frozen
    """List what stands now and somebody should know of, and who is told."""
    with common.client() as client:
        found = client.alerts()
    if common.json:
        print_json(found.model_dump(mode="json"))
        return
    rows = table("SEVERITY", "SINCE", "WHAT", "LOOK")
    for alert in found.alerts:
        rows.add_row(alert.severity, clock_text(alert.since), alert.text, alert.next)
    show_table(rows)
    if not found.alerts:
        note("nothing stands")
    for receiver in found.receivers:
        trouble = f": the last message did not reach it: {receiver.trouble}"
        note(f"told: {receiver.name}{trouble if receiver.trouble else ''}")
    if found.trouble:
        note(found.trouble)
    elif not found.receivers:
        note(f"nobody is told; {HOW}")


def try_out(*, common: Change = Change()) -> None:  # noqa: B008 - frozen
    """Send a message to each receiver of alerts.yaml."""
    with common.client() as client:
        sent = client.test_alerts()
    if common.json:
        print_json({"sent": sent})
    else:
        say(f"handed over to {', '.join(sent)}")
