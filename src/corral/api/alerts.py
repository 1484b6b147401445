"""Routes of alerts: list current alerts, and send a test message to their receivers."""

from fastapi import APIRouter

from corral.api.job_visibility import sight_of
from corral.api.jobs import Asker, Within
from corral.domain.errors import Conflict
from corral.wire import alerts as wire

router = APIRouter()


@router.get("/v1/alerts")
async def alerts(house: Within, caller: Asker) -> wire.Alerts:
    """Return the open alerts and all receivers, with the receivers that the last
    message did not reach."""
    sight = sight_of(house.control, caller)
    alerting = house.alerting
    if alerting is None:
        return wire.Alerts(alerts=[], receivers=[], trouble="")
    alert_settings = alerting.asked()
    return wire.Alerts(
        alerts=[
            wire.AlertRow.of(alert)
            for alert in alerting.standing()
            if sight.text(alert_text := f"{alert.key} {alert.text} {alert.next}")
            == alert_text
        ],
        receivers=[
            wire.ReceiverRow(
                name=receiver.name, trouble=alerting.troubles.get(receiver.name, "")
            )
            for receiver in alert_settings.receivers
        ],
        trouble=alert_settings.trouble,
    )


@router.post("/v1/alerts/test")
async def test(house: Within, caller: Asker) -> wire.AlertsSent:
    """Send a test message to each receiver, and list the receivers it did not reach."""
    alerting = house.alerting
    alert_settings = alerting.asked() if alerting is not None else None
    if alert_settings is not None and alert_settings.trouble:
        raise Conflict(
            alert_settings.trouble,
            hint="correct alerts.yaml; for its format, run: corral alert --help",
        )
    if alerting is None or alert_settings is None or not alert_settings.receivers:
        raise Conflict(
            "no receiver of alerts is configured",
            hint="list receivers in alerts.yaml; for its format, run: corral alert --help",
        )
    await house.control.store.record(caller.entry(house.control.clock.wall()))
    outcomes = await alerting.test()
    failed = [
        wire.ReceiverRow(name=name, trouble=reason)
        for name, reason in outcomes.items()
        if reason
    ]
    return wire.AlertsSent(
        sent=[name for name, reason in outcomes.items() if not reason], failed=failed
    )
