"""Alerts: the format of alerts.yaml (receivers and rules), and the answers of the
API."""

import re
from collections.abc import Mapping
from typing import Annotated, Any, Final, Literal
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from corral.insight.alerts import Alert, AlertKind, AlertRules, Severity
from corral.insight.notifications import Quiet, Taste
from corral.wire import field_readers
from corral.wire.field_readers import WrongValue, reader, shown
from corral.wire.job_parts import ForecastView
from corral.wire.spec_reader import Problem, refusal
from corral.wire.yaml_document import Document, Where

_CLOCK: Final = re.compile(r"([01]?\d|2[0-3]):([0-5]\d)", re.ASCII)
_ADDRESS: Final = re.compile(r"[^@\s,<>\r\n]{1,64}@[^@\s,<>\r\n]{1,255}", re.ASCII)
_EXAMPLE: Final = "{name: team, slack: https://hooks.slack.com/services/...}"
MOST_RECEIVERS: Final = 20


def _validate_url(value: Any, *, field: str) -> str:
    if not isinstance(value, str) or not re.fullmatch(
        r"https?://[^\s/@]+(/\S*)?", value
    ):
        raise WrongValue(
            f"{shown(value)} is not a valid web address (URL)",
            f"write: {field}: https://...",
        )
    return value


def _validate_email(value: Any) -> str:
    if not isinstance(value, str) or not _ADDRESS.fullmatch(value):
        raise WrongValue(
            f"{shown(value)} is not a valid e-mail address",
            "write: to: [ops@example.org]",
        )
    return value


def _parse_time_of_day(value: Any) -> float:
    """Return the seconds of the day for a time. For example: "22:00"."""
    match = _CLOCK.fullmatch(value) if isinstance(value, str) else None
    if match is None:
        raise WrongValue(
            f"{shown(value)} is not a valid time of day",
            'write hours and minutes in quotes, for example: from: "22:00"',
        )
    return int(match[1]) * 3600.0 + int(match[2]) * 60.0


def _validate_time_zone(value: Any) -> str:
    try:
        ZoneInfo(str(value))
    except (ZoneInfoNotFoundError, ValueError, OSError):
        raise WrongValue(
            f"{shown(value)} is not a time zone that this machine knows",
            "write: zone: Europe/Berlin, or UTC",
        ) from None
    return str(value)


def _parse_fraction(value: Any, *, field: str) -> float | None:
    """Return a fraction from "10%" or 0.1; None, which means never, for off."""
    if value is False or value == "off":
        return None
    number = value
    if isinstance(value, str) and re.fullmatch(r"\d{1,2}(\.\d+)?\s*%", value):
        number = float(value.rstrip("% ")) / 100
    if (
        isinstance(number, bool)
        or not isinstance(number, int | float)
        or not 0 < number < 1
    ):
        raise WrongValue(
            f"{shown(value)} is not a share above 0 and below 100%",
            f"write: {field}: 10%, or off",
        )
    return float(number)


def _parse_delay(value: Any, *, field: str) -> float | None:
    """Return the seconds of a delay. For example: "30m". None, which means never, for
    off."""
    if value is False or value == "off":
        return None
    return field_readers.seconds(value, field=field, low=1.0)


def _parse_switch(value: Any, *, field: str) -> bool:
    if isinstance(value, bool) or value in ("on", "off"):
        return value in (True, "on")
    raise WrongValue(f"{shown(value)} is neither on nor off", f"write: {field}: off")


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)


class QuietHours(_Part):
    begin: Annotated[float, BeforeValidator(_parse_time_of_day)] = Field(alias="from")
    until: Annotated[float, BeforeValidator(_parse_time_of_day)]
    zone: Annotated[str, BeforeValidator(_validate_time_zone)] = "UTC"


class Mail(_Part):
    """Settings of messages by SMTP. The password is in a separate file with mode 0600."""

    to: list[Annotated[str, BeforeValidator(_validate_email)]] = Field(
        min_length=1, max_length=20
    )
    sender: Annotated[str, BeforeValidator(_validate_email)] = Field(alias="from")
    host: str = Field(min_length=1, max_length=255)
    port: int = Field(default=587, ge=1, le=65535)
    security: Literal["starttls", "tls", "none"] = "starttls"
    user: str | None = None
    password_file: str | None = None


class ReceiverBody(_Part):
    """A receiver of alerts: its address (one of webhook, slack and email), and which
    alerts it gets."""

    name: str = Field(min_length=1, max_length=60)
    webhook: (
        Annotated[str, BeforeValidator(reader(_validate_url, field="webhook"))] | None
    ) = None
    slack: (
        Annotated[str, BeforeValidator(reader(_validate_url, field="slack"))] | None
    ) = None
    email: Mail | None = None
    secret_file: str | None = None  # signs what a webhook gets
    least: Literal["info", "warning", "critical"] = "info"
    of: list[Annotated[AlertKind, Field(strict=False)]] = []
    repeat: Annotated[
        float, BeforeValidator(reader(field_readers.seconds, field="repeat", low=60.0))
    ] = 4 * 3600.0
    quiet: QuietHours | None = None

    @property
    def taste(self) -> Taste:
        quiet = None
        if self.quiet is not None:
            quiet = Quiet(from_seconds=self.quiet.begin, until_seconds=self.quiet.until)
        return Taste(
            least=Severity(self.least),
            kinds=frozenset(self.of),
            repeat_seconds=self.repeat,
            quiet=quiet,
        )


def _rule_validator(read_it: Any, field: str) -> BeforeValidator:
    return BeforeValidator(reader(read_it, field=field))


class Rules(_Part):
    """Thresholds of the alerts; off disables an alert."""

    job_failed: Annotated[bool, _rule_validator(_parse_switch, "job_failed")] = True
    job_stuck: Annotated[float | None, _rule_validator(_parse_delay, "job_stuck")] = (
        1800.0
    )
    job_hung: Annotated[bool, _rule_validator(_parse_switch, "job_hung")] = True
    loss_nan: Annotated[bool, _rule_validator(_parse_switch, "loss_nan")] = True
    node_down: Annotated[float | None, _rule_validator(_parse_delay, "node_down")] = (
        60.0
    )
    node_kept_back: Annotated[
        bool, _rule_validator(_parse_switch, "node_kept_back")
    ] = True
    queue_starved: Annotated[
        float | None, _rule_validator(_parse_delay, "queue_starved")
    ] = 86_400.0
    budget_low: Annotated[
        float | None, _rule_validator(_parse_fraction, "budget_low")
    ] = 0.1
    disk_full: Annotated[
        float | None, _rule_validator(_parse_fraction, "disk_full")
    ] = 0.05

    @property
    def domain(self) -> AlertRules:
        return AlertRules(
            job_failed=self.job_failed,
            job_stuck_seconds=self.job_stuck,
            job_hung=self.job_hung,
            loss_nan=self.loss_nan,
            node_down_seconds=self.node_down,
            node_kept_back=self.node_kept_back,
            queue_starved_seconds=self.queue_starved,
            budget_left_share=self.budget_low,
            disk_free_share=self.disk_full,
        )


class AlertFile(_Part):
    kind: Literal["alerts"] = "alerts"
    to: list[ReceiverBody] = Field(min_length=1, max_length=MOST_RECEIVERS)
    rules: Rules = Rules()


def read_alerts(document: Document) -> AlertFile:
    """Read an alerts file. Raises: SpecInvalid with file and line."""
    try:
        alert_file = AlertFile.model_validate(document.value)
    except ValidationError as error:
        problems = [
            _problem_from_error(dict(problem))
            for problem in error.errors(include_url=False)
        ]
        raise refusal(document, problems) from None
    names = [receiver.name for receiver in alert_file.to]
    problems = []
    for receiver_index, receiver_body in enumerate(alert_file.to):
        channels = [
            channel
            for channel in ("webhook", "slack", "email")
            if getattr(receiver_body, channel) is not None
        ]
        if len(channels) != 1:
            ways_text = " and ".join(channels) or "no address"
            text = (
                f"receiver {receiver_body.name} has {ways_text}; exactly one of "
                "webhook, slack and email is required"
            )
            problems.append(
                Problem(
                    where=("to", receiver_index), text=text, hint=f"write: {_EXAMPLE}"
                )
            )
        if names.count(receiver_body.name) > 1:
            text = f"{shown(receiver_body.name)} is the name of several receivers"
            problems.append(
                Problem(
                    where=("to", receiver_index, "name"),
                    text=text,
                    hint="give each receiver a different name",
                )
            )
    if problems:
        raise refusal(document, problems)
    return alert_file


def _problem_from_error(error: Mapping[str, Any]) -> Problem:
    field_path: Where = tuple(error["loc"])
    field = str(field_path[-1]) if field_path else "to"
    if error["type"] == "value_error":
        field_error = error["ctx"]["error"]
        return Problem(where=field_path, text=field_error.text, hint=field_error.hint)
    if error["type"] == "extra_forbidden":
        return Problem(
            where=field_path,
            text="there is no such field",
            hint=f"use one of: {_known_field_names(field_path)}",
        )
    if error["type"] == "missing":
        example = f"to: [{_EXAMPLE}]" if field == "to" else f"{field}: ..."
        return Problem(where=field_path, text="is missing", hint=f"add: {example}")
    if len(field_path) > 1 and field_path[-2] == "of":
        text = f"{shown(error.get('input'))} is not a kind of alert"
        return Problem(
            where=field_path,
            text=text,
            hint=f"write one or more of: {', '.join(AlertKind)}",
        )
    text = f"{shown(error.get('input'))} is not a valid value"
    return Problem(where=field_path, text=text, hint=f"write: to: [{_EXAMPLE}]")


def _known_field_names(where: Where) -> str:
    """Return the valid field names of the section at this place, for an error about an
    unknown field."""
    section_models: dict[str, type[BaseModel]] = {
        "rules": Rules,
        "quiet": QuietHours,
        "email": Mail,
    }
    inside = str(where[-2]) if len(where) > 1 else ""
    section_model = section_models.get(
        inside, AlertFile if len(where) == 1 else ReceiverBody
    )
    return ", ".join(
        field.alias or name for name, field in section_model.model_fields.items()
    )


class AlertRow(ForecastView):
    """An active alert, whose condition is true now (`corral alert ls`)."""

    key: str
    kind: str
    severity: str
    text: str
    next: str
    since: float

    @classmethod
    def of(cls, alert: Alert) -> "AlertRow":
        return cls(
            key=alert.key,
            kind=alert.kind.value,
            severity=alert.severity.value,
            text=alert.text,
            next=alert.next,
            since=alert.since,
        )


class ReceiverRow(ForecastView):
    """A receiver of alerts. `trouble`: why the last message did not reach it."""

    name: str
    trouble: str


class Alerts(ForecastView):
    """The current alerts and the receivers. `trouble`: why alerts.yaml cannot be read."""

    alerts: list[AlertRow]
    receivers: list[ReceiverRow]
    trouble: str


class AlertsSent(ForecastView):
    """Result of a test message: the receivers that got it, and the receivers that it
    did not reach."""

    sent: list[str]
    failed: list[ReceiverRow] = []
