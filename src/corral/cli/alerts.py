"""alert ls and alert test: list current alerts, and test the delivery of messages."""

from typing import TYPE_CHECKING

from corral.cli.error_output import DONE, JOB_FAILED
from corral.cli.head_options import Change, Common
from corral.cli.printing import (
    clean,
    clock_text,
    note,
    print_json,
    say,
    show_table,
    table,
)

if TYPE_CHECKING:
    from corral.wire import alerts

HOW = (
    "to configure one, write alerts.yaml in the cluster's directory; see: "
    "corral alert --help"
)


def ls(*, common: Common = Common()) -> None:  # noqa: B008 - frozen
    """List open alerts and their receivers."""
    with common.client() as client:
        alert_list = client.alerts()
    if common.json:
        print_json(alert_list.model_dump(mode="json"))
        return
    rows = table("SEVERITY", "SINCE", "WHAT")
    for alert in alert_list.alerts:
        look = f"\n-> {alert.next}" if alert.next else ""
        rows.add_row(alert.severity, clock_text(alert.since), clean(alert.text + look))
    show_table(rows)
    if not alert_list.alerts:
        note("no alert is open")
    for receiver in alert_list.receivers:
        trouble = (
            f": the last message was not delivered: {_delivery_error_text(receiver)}"
        )
        note(f"receiver: {receiver.name}{trouble if receiver.trouble else ''}")
    if alert_list.trouble:
        note(alert_list.trouble)
    elif not alert_list.receivers:
        note(f"no alert receiver is configured; {HOW}")


def try_out(*, common: Change = Change()) -> int:  # noqa: B008 - frozen
    """Send a test message to each receiver of alerts.yaml. The exit code is 1 if a
    receiver was not reached."""
    with common.client() as client:
        alerts_sent = client.test_alerts()
    if common.json:
        print_json(alerts_sent)
    elif alerts_sent.sent:
        say(f"test message sent to {', '.join(alerts_sent.sent)}")
    for receiver_row in alerts_sent.failed if not common.json else ():
        say(
            f"test message not delivered to {receiver_row.name}: "
            f"{_delivery_error_text(receiver_row)}"
        )
    return JOB_FAILED if alerts_sent.failed else DONE


def _delivery_error_text(one: "alerts.ReceiverRow") -> str:
    """Return the delivery error of a receiver, without the receiver's name at its
    beginning."""
    prefix = f"no message could be sent to receiver {one.name}: "
    return clean(one.trouble.removeprefix(prefix))
