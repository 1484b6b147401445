"""Routes of alerts: list current alerts, and send a test message to their receivers."""

from fastapi import APIRouter

from corral.api.job_visibility import sight_of
from corral.api.jobs import Asker, Within
from corral.domain.errors import Conflict
from corral.wire import alerts as wire

router = APIRouter()


@router.get("/v1/alerts")
async def alerts(house: Within, caller: Asker) -> wire.Alerts:
    """Return the open alerts, their receivers, and the receivers that the last message did not
    reach."""
    sight = sight_of(house.control, caller)
    alerting = house.alerting
    if alerting is None:
        return wire.Alerts(alerts=[], receivers=[], trouble="")
    asked = alerting.asked()
    return wire.Alerts(
        alerts=[
            wire.AlertRow.of(one)
            for one in alerting.standing()
            if sight.text(told := f"{one.key} {one.text} {one.next}") == told
        ],
        receivers=[
            wire.ReceiverRow(name=one.name, trouble=alerting.troubles.get(one.name, ""))
            for one in asked.receivers
        ],
        trouble=asked.trouble,
    )


@router.post("/v1/alerts/test")
async def test(house: Within, caller: Asker) -> wire.AlertsSent:
    """Send a test message to each receiver, and list the receivers it did not reach."""
    alerting = house.alerting
    asked = alerting.asked() if alerting is not None else None
    if asked is not None and asked.trouble:
        raise Conflict(asked.trouble, hint="mend it; how it is written: corral alert --help")
    if alerting is None or asked is None or not asked.receivers:
        raise Conflict("nobody is told of alerts", hint="write alerts.yaml: corral alert --help")
    await house.control.store.record(caller.entry(house.control.clock.wall()))
    found = await alerting.test()
    failed = [wire.ReceiverRow(name=name, trouble=why) for name, why in found.items() if why]
    return wire.AlertsSent(sent=[name for name, why in found.items() if not why], failed=failed)
