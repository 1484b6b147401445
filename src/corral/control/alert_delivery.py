"""Delivery of alerts to receivers. Every few seconds, each receiver gets the alert
conditions that hold now and the job failures that have happened since."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Protocol

from corral.control.control import Control
from corral.domain.errors import Trouble
from corral.domain.ids import QueueName
from corral.domain.units import DAY_SECONDS, HOUR_SECONDS
from corral.insight.alerts import (
    Alert,
    AlertRules,
    AlertSnapshot,
    happened,
    standing,
    with_beginnings,
)
from corral.insight.notifications import DeliveredAlerts, Notification, due
from corral.ports.log import HeadLogger
from corral.ports.notifications import Receiver
from corral.reconcile.changeset import Draft
from corral.reconcile.usage import held_now, spent_now

STEP_SECONDS: Final = 5.0
# until a message is tried again that could not be handed over
AGAIN_SECONDS: Final = 60.0
ID_DIGITS: Final = 8  # of the cluster's id, in messages
MOST_MOMENTS: Final = 1000
PAGE: Final = 1000
log = HeadLogger("corral.alerts")


@dataclass(frozen=True, slots=True, kw_only=True)
class Remembered:
    """State that a new head needs to continue the delivery of alerts: the last event
    that was read, the alerts that each receiver already has, and alerts about failures
    that may still have to be sent (`moments`)."""

    event: int | None = None
    told: Mapping[str, DeliveredAlerts] = field(default_factory=dict)
    moments: tuple[Alert, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class AlertSettings:
    """Settings of the alerts, from alerts.yaml. `trouble` says why the newest version
    of that file could not be read; "" if it could."""

    rules: AlertRules = AlertRules()  # noqa: RUF009 - frozen
    receivers: tuple[Receiver, ...] = ()
    trouble: str = ""


class AlertMemory(Protocol):
    def load(self) -> Remembered: ...

    def save(self, remembered: Remembered) -> None: ...


class Alerting:
    """Delivers alerts while the head leads.

    A message that could not be delivered is built again and retried. No alert is lost,
    but a receiver may get the same alert twice.
    """

    def __init__(
        self,
        control: Control,
        asked: Callable[[], AlertSettings],
        memory: AlertMemory,
        disks: Callable[[], Mapping[str, tuple[int, int]]],
        *,
        machine: str = "",
    ) -> None:
        self._control = control
        self._machine = machine
        self.asked = asked
        self._memory = memory
        self._disks = disks
        self._failed_at: dict[str, float] = {}
        self._since: dict[str, float] = {}  # of what stands, by key
        self.troubles: dict[str, str] = {}  # by the receiver's name

    @property
    def cluster(self) -> str:
        """The name of the cluster in messages: the name of the head's machine, and the
        first digits of the cluster's id."""
        id_prefix = self._control.world.cluster[:ID_DIGITS]
        return f"{self._machine} ({id_prefix})" if self._machine else id_prefix

    def standing(self) -> list[Alert]:
        """Return the alert conditions that hold now, each with the time at which it
        began. They are computed even without a receiver. A low share of a budget has no
        start time in the data; it counts from when it was first seen."""
        alerts = with_beginnings(
            standing(self._look(), self.asked().rules), self._since
        )
        self._since = {alert.key: alert.since for alert in alerts}
        return alerts

    def warnings(self) -> list[str]:
        """Return sentences about unread settings and undelivered alerts."""
        trouble = self.asked().trouble
        undelivered = [
            f"alerts do not reach the receiver {name}: {failure_reason}"
            for name, failure_reason in self.troubles.items()
        ]
        return [*([trouble] if trouble else []), *undelivered]

    async def run(self) -> None:
        """Deliver alerts forever."""
        remembered = self._memory.load()
        sent_alerts = (
            sent_alert
            for delivered_alerts in remembered.told.values()
            for sent_alert in delivered_alerts.sent.items()
        )
        self._since = {
            key: delivery.alert.since
            for key, delivery in sent_alerts
            if not delivery.alert.moment
        }
        while True:
            await asyncio.sleep(STEP_SECONDS)
            alert_settings = self.asked()
            if not alert_settings.receivers:
                self.standing()
                continue
            try:
                updated_memory = await self._deliver_alerts(remembered, alert_settings)
            except Trouble as trouble:
                log.warning("not_looked", error=trouble.message)
                continue
            if updated_memory != remembered:
                remembered = updated_memory
                self._memory.save(remembered)

    async def test(self) -> dict[str, str]:
        """Send one test message to each receiver, independently of the others. Return
        for each receiver's name why its message was not delivered; "" if it was."""
        receivers = self.asked().receivers
        outcomes = await asyncio.gather(*map(self._test_receiver, receivers))
        return {
            receiver.name: failure_reason
            for receiver, failure_reason in zip(receivers, outcomes, strict=True)
        }

    async def _test_receiver(self, receiver: Receiver) -> str:
        try:
            await receiver.send(Notification(), self.cluster)
        except Trouble as trouble:
            return trouble.message
        return ""

    async def _deliver_alerts(
        self, known: Remembered, asked: AlertSettings
    ) -> Remembered:
        now = self._control.now().wall
        event, new_alerts = await self._read(known.event, asked.rules)
        moments = [
            alert
            for alert in (*known.moments, *new_alerts)
            if now - alert.since < DAY_SECONDS
        ]
        moments = moments[-MOST_MOMENTS:]
        alerts = [*self.standing(), *moments]
        sent_now = {}
        for receiver in asked.receivers:
            previous_state = known.told.get(receiver.name, DeliveredAlerts())
            sent_now[receiver.name] = await self._send_to_receiver(
                receiver, previous_state, alerts, now
            )
        return Remembered(event=event, told=sent_now, moments=tuple(moments))

    async def _send_to_receiver(
        self,
        receiver: Receiver,
        before: DeliveredAlerts,
        alerts: Sequence[Alert],
        now: float,
    ) -> DeliveredAlerts:
        """Deliver the due alerts to one receiver. Return its new state, or `before` if
        the delivery failed."""
        if now - self._failed_at.get(receiver.name, float("-inf")) < AGAIN_SECONDS:
            return before
        notice, next_state = due(
            before, alerts, now, receiver.day_seconds(now), receiver.taste
        )
        if notice is None:
            return next_state
        try:
            await receiver.send(notice, self.cluster)
        except Trouble as trouble:
            self._failed_at[receiver.name] = now
            self.troubles[receiver.name] = trouble.message
            log.warning("alert_not_sent", to=receiver.name, error=trouble.message)
            return before
        self.troubles.pop(receiver.name, None)
        self._failed_at.pop(receiver.name, None)
        return next_state

    async def _read(
        self, after: int | None, rules: AlertRules
    ) -> tuple[int, list[Alert]]:
        """Read the events after number `after`. Return the number of the newest event,
        and alerts for the jobs that failed or hung, by these events. With `after` None there are
        no alerts, because events before the first receiver are not sent."""
        store, alerts = self._control.store, list[Alert]()
        number = after or 0
        while page := await store.events(after=number, job=None, limit=PAGE):
            number = page[-1].number
            for event in page if after is not None else ():
                job = await store.job(event.job) if event.job is not None else None
                alert = happened(event, job, rules)
                if alert is not None:
                    alerts.append(alert)
        return number, alerts

    def _look(self) -> AlertSnapshot:
        control = self._control
        now = control.now()
        return AlertSnapshot(
            world=control.world,
            facts=control.facts,
            wall=now.wall,
            serving=now.serving,
            samples=control.sensed.newest,
            budgets=budgets_left(Draft(control.world, control.facts, now)),
            disks=self._disks(),
        )


def budgets_left(draft: Draft) -> dict[QueueName, float]:
    """Return for each queue with a budget which share of it, from 0 to 1, is not spent
    in this period."""
    budgets = {}
    for name, spent in spent_now(draft, held_now(draft)).items():
        budget = draft.tree.queue(name).budget
        assert budget is not None
        if budget.money is not None:
            amount, done = budget.money, spent.money
        else:
            amount, done = budget.gpu_hours or 0.0, spent.gpu_seconds / HOUR_SECONDS
        budgets[name] = max(0.0, 1 - done / amount) if amount else 0.0
    return budgets
