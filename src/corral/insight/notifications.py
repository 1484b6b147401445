"""Notifications of alerts: each alert is sent once, grouped with others, repeated while
it holds, and reported when it ends. At night only critical alerts are sent."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from corral.domain.units import DAY_SECONDS
from corral.insight.alerts import Alert, AlertKind, Severity

# that it must be over before it is reported as over: it may flap
CALM_SECONDS: Final = 120.0
ALIKE: Final = 5  # more of a kind at once are reported as a number


@dataclass(frozen=True, slots=True, kw_only=True)
class Quiet:
    """Hours in which only critical alerts are reported, as seconds of the local day;
    they may span midnight. Alerts that begin in these hours and still hold are reported
    afterwards."""

    from_seconds: float
    until_seconds: float

    def holds(self, day_seconds: float) -> bool:
        if self.from_seconds <= self.until_seconds:
            return self.from_seconds <= day_seconds < self.until_seconds
        return day_seconds >= self.from_seconds or day_seconds < self.until_seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class Taste:
    """Choice of the alerts that one receiver gets: the lowest severity, the kinds
    (empty: all kinds), the time after which an alert is repeated, and quiet hours."""

    least: Severity = Severity.INFO
    kinds: frozenset[AlertKind] = frozenset()
    repeat_seconds: float = 4 * 3600.0
    quiet: Quiet | None = None

    def wants(self, alert: Alert) -> bool:
        return alert.severity.rank >= self.least.rank and (
            not self.kinds or alert.kind in self.kinds
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class SentAlert:
    """An alert that was sent to one receiver. `over_at` is the time since which the
    alert's condition no longer holds; None if it still holds."""

    alert: Alert
    at: float
    over_at: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Notification:
    """One message to a receiver. `alerts` are those that hold now; `over` are alerts
    that were sent before and have ended."""

    alerts: tuple[Alert, ...] = ()
    over: tuple[Alert, ...] = ()

    @property
    def severity(self) -> Severity:
        return max(
            (alert.severity for alert in self.alerts),
            key=lambda s: s.rank,
            default=Severity.INFO,
        )

    @property
    def lines(self) -> list[str]:
        """Return the message as lines of text. At most ALIKE alerts of each kind get a
        line of their own."""
        return [
            *_group_alert_texts(self.alerts, ""),
            *_group_alert_texts(self.over, "over: "),
        ]


@dataclass(frozen=True, slots=True, kw_only=True)
class DeliveredAlerts:
    """The alerts that were sent to one receiver, by key. They are stored, so that a new
    head does not send them again."""

    sent: Mapping[str, SentAlert] = field(default_factory=dict)


def due(
    told: DeliveredAlerts,
    alerts: Sequence[Alert],
    now: float,
    day_seconds: float,
    taste: Taste,
) -> tuple[Notification | None, DeliveredAlerts]:
    """Return the notification for one receiver (None if there is nothing to send), and
    the receiver's new state. The state may change without a notification, when an alert
    has begun to end. `day_seconds`: the receiver's local time of day. `taste`: the
    receiver's preferences."""
    is_quiet = taste.quiet is not None and taste.quiet.holds(day_seconds)
    current_alerts = {alert.key: alert for alert in alerts if taste.wants(alert)}
    sent_alerts = dict(_update_sent_alerts(told.sent, current_alerts, now))
    new_alerts = [
        alert
        for key, alert in current_alerts.items()
        if (key not in sent_alerts or _is_repeat_due(sent_alerts[key], now, taste))
        and (not is_quiet or alert.severity == Severity.CRITICAL)
    ]
    ended_alerts = [
        sent_alert.alert
        for sent_alert in sent_alerts.values()
        if sent_alert.over_at is not None
        and now - sent_alert.over_at >= CALM_SECONDS
        and not is_quiet
    ]
    for alert in ended_alerts:
        del sent_alerts[alert.key]
    sent_alerts |= {alert.key: SentAlert(alert=alert, at=now) for alert in new_alerts}
    sent_alerts = {
        key: sent_alert
        for key, sent_alert in sent_alerts.items()
        if not _is_past(sent_alert, now)
    }
    new_state = DeliveredAlerts(sent=sent_alerts)
    ended_alerts = [alert for alert in ended_alerts if not alert.moment]
    if not new_alerts and not ended_alerts:
        return None, new_state
    return Notification(alerts=tuple(new_alerts), over=tuple(ended_alerts)), new_state


def _update_sent_alerts(
    sent: Mapping[str, SentAlert], there: Mapping[str, Alert], now: float
) -> Iterable[tuple[str, SentAlert]]:
    """Yield the sent alerts, each with the time since which it no longer holds, if it
    does not."""
    for key, sent_alert in sent.items():
        if sent_alert.alert.moment:
            yield key, sent_alert
        elif key in there:
            yield key, replace(sent_alert, over_at=None)
        else:
            yield (
                key,
                replace(
                    sent_alert,
                    over_at=now if sent_alert.over_at is None else sent_alert.over_at,
                ),
            )


def _is_repeat_due(one: SentAlert, now: float, taste: Taste) -> bool:
    return not one.alert.moment and now - one.at >= taste.repeat_seconds


def _is_past(one: SentAlert, now: float) -> bool:
    """Return whether the sent alert is an event that is older than a day. Events are
    remembered for a day, so that they are neither sent twice nor kept for ever."""
    return one.alert.moment and now - one.at > DAY_SECONDS


def _group_alert_texts(alerts: Sequence[Alert], before: str) -> list[str]:
    alert_lines = []
    for kind in dict.fromkeys(alert.kind for alert in alerts):
        of_kind = [alert for alert in alerts if alert.kind == kind]
        alert_lines += [
            f"{before}{alert.text} ({alert.next})" for alert in of_kind[:ALIKE]
        ]
        if len(of_kind) > ALIKE:
            alert_lines.append(
                f"{before}and {len(of_kind) - ALIKE} more alerts of the kind "
                f"{kind.value.replace('_', ' ')}"
            )
    return alert_lines
