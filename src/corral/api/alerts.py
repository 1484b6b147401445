"""Routes of alerts: what stands now, and a message to try out whom they reach."""

from fastapi import APIRouter

from corral.api.jobs import Asker, Within
from corral.domain.errors import NotFound
from corral.wire import alerts as wire

router = APIRouter()


@router.get("/v1/alerts")
async def alerts(house: Within) -> wire.Alerts:
    """What stands now, who is told, and whom the last message did not reach."""
    alerting = house.alerting
    if alerting is None:
        return wire.Alerts(alerts=[], receivers=[], trouble="")
    asked = alerting.asked()
    return wire.Alerts(
        alerts=[wire.AlertRow.of(one) for one in alerting.standing()],
        receivers=[
            wire.ReceiverRow(name=one.name, trouble=alerting.troubles.get(one.name, ""))
            for one in asked.receivers
        ],
        trouble=asked.trouble,
    )


@router.post("/v1/alerts/test")
async def test(house: Within, caller: Asker) -> wire.AlertsSent:
    """Send one message to each receiver. Another error than the first is not told."""
    alerting = house.alerting
    if alerting is None or not alerting.asked().receivers:
        raise NotFound("receiver", "of alerts", [], see="corral alert --help")
    await house.control.store.record(caller.entry(house.control.clock.wall()))
    return wire.AlertsSent(sent=await alerting.test())
