"""Senders of alerts: by a webhook, by Slack's kind of webhook, and by e-mail."""

import asyncio
import hashlib
import hmac
import json
import shutil
import smtplib
import ssl
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from email.message import EmailMessage
from pathlib import Path
from typing import Any, Final
from zoneinfo import ZoneInfo

import httpx2

from corral.domain.errors import Trouble
from corral.insight.alerts import Severity
from corral.insight.notifications import Notification, Taste
from corral.wire import alerts as wire

SECONDS: Final = 15.0
TEST: Final = "This is a test: alerts of this cluster reach you."
MARKS: Final = {
    Severity.INFO: ":information_source:",
    Severity.WARNING: ":warning:",
    Severity.CRITICAL: ":rotating_light:",
}


class MessageNotSent(Trouble):
    """A message could not be delivered to its receiver."""

    code = "not_sent"

    def __init__(self, name: str, why: str) -> None:
        hint = "correct this receiver in alerts.yaml, then run: corral alert test"
        super().__init__(
            f"no message could be sent to receiver {name}: {why}", hint=hint
        )


def title_of(notice: Notification, cluster: str) -> str:
    if not notice.alerts and not notice.over:
        return f"Corral {cluster}: test"
    if not notice.alerts:
        return f"Corral {cluster}: alerts have ended"
    first_alert, remaining_count = notice.alerts[0], len(notice.alerts) - 1
    return f"Corral {cluster}: {first_alert.text}" + (
        f" and {remaining_count} more" if remaining_count else ""
    )


def body_of(notice: Notification) -> str:
    return "\n".join(notice.lines) or TEST


@dataclass(frozen=True, slots=True, kw_only=True)
class _Receiver:
    name: str
    taste: Taste
    zone: str = "UTC"

    def day_seconds(self, wall: float) -> float:
        local = datetime.fromtimestamp(wall, ZoneInfo(self.zone))
        return local.hour * 3600.0 + local.minute * 60.0 + local.second

    async def send(self, notice: Notification, cluster: str) -> None:
        raise NotImplementedError


@dataclass(frozen=True, slots=True, kw_only=True)
class Webhook(_Receiver):
    """A receiver that gets a POST request with JSON.

    With a secret, the header `X-Corral-Signature: sha256=...` holds the HMAC of the
    body. Redirects are not followed, so messages go only to the address in the file.
    """

    address: str
    secret_file: Path | None = None
    slack: bool = False

    async def send(self, notice: Notification, cluster: str) -> None:
        form = slack_form if self.slack else webhook_form
        body = json.dumps(form(notice, cluster)).encode()
        headers = {"Content-Type": "application/json"}
        if self.secret_file is not None:
            secret = _read_secret_file(self.name, self.secret_file)
            signature = hmac.new(secret, body, hashlib.sha256).hexdigest()
            headers["X-Corral-Signature"] = f"sha256={signature}"
        try:
            async with httpx2.AsyncClient(timeout=SECONDS) as http:
                answer = await http.post(self.address, content=body, headers=headers)
        except (httpx2.HTTPError, httpx2.InvalidURL, OSError) as error:
            raise MessageNotSent(
                self.name, f"{type(error).__name__}: {error}"
            ) from error
        if answer.status_code >= 300:
            raise MessageNotSent(
                self.name, f"its address answers with HTTP status {answer.status_code}"
            )


def webhook_form(notice: Notification, cluster: str) -> dict[str, Any]:
    return {
        "cluster": cluster,
        "severity": notice.severity.value,
        "title": title_of(notice, cluster),
        "text": body_of(notice),
        "alerts": [wire.AlertRow.of(alert).model_dump() for alert in notice.alerts],
        "over": [wire.AlertRow.of(alert).model_dump() for alert in notice.over],
    }


def slack_form(notice: Notification, cluster: str) -> dict[str, Any]:
    """Return the message in the form of Slack. The characters &, < and > are escaped,
    because Slack reserves them.

    Source: Slack, "Incoming webhooks".
    """
    lines = body_of(notice)
    for sign, name in (("&", "&amp;"), ("<", "&lt;"), (">", "&gt;")):
        lines = lines.replace(sign, name)
    return {"text": f"{MARKS[notice.severity]} *Corral {cluster}*\n{lines}"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Mailbox(_Receiver):
    """A receiver by e-mail (SMTP). Messages are sent in a thread, because the library
    blocks."""

    mail: wire.Mail
    folder: Path

    async def send(self, notice: Notification, cluster: str) -> None:
        message = EmailMessage()
        message["Subject"] = " ".join(title_of(notice, cluster).split())[:200]
        message["From"], message["To"] = self.mail.sender, ", ".join(self.mail.to)
        message.set_content(body_of(notice))
        try:
            await asyncio.to_thread(self._hand_over, message)
        except (OSError, smtplib.SMTPException, ValueError) as error:
            raise MessageNotSent(self.name, f"{self.mail.host}: {error}") from error

    def _hand_over(self, message: EmailMessage) -> None:
        mail, context = self.mail, ssl.create_default_context()
        if mail.security == "tls":
            server: smtplib.SMTP = smtplib.SMTP_SSL(
                mail.host, mail.port, timeout=SECONDS, context=context
            )
        else:
            server = smtplib.SMTP(mail.host, mail.port, timeout=SECONDS)
        with server:
            if mail.security == "starttls":
                server.starttls(context=context)
            if mail.user is not None:
                password = b""
                if mail.password_file is not None:
                    password = _read_secret_file(
                        self.name, self.folder / mail.password_file
                    )
                server.login(mail.user, password.decode())
            server.send_message(message)


def receiver_of(one: wire.ReceiverBody, folder: Path) -> Webhook | Mailbox:
    """Return the receiver that its settings describe. Paths of files are relative to
    the folder of alerts.yaml."""
    zone = one.quiet.zone if one.quiet is not None else "UTC"
    if one.email is not None:
        return Mailbox(
            name=one.name, taste=one.taste, zone=zone, mail=one.email, folder=folder
        )
    address = one.slack or one.webhook
    assert address is not None
    secret = folder / one.secret_file if one.secret_file is not None else None
    return Webhook(
        name=one.name,
        taste=one.taste,
        zone=zone,
        address=address,
        secret_file=secret,
        slack=one.slack is not None,
    )


def _read_secret_file(name: str, file: Path) -> bytes:
    try:
        return file.read_bytes().strip()
    except OSError as error:
        raise MessageNotSent(
            name, f"{file} cannot be read: {error.strerror}"
        ) from error


def disks_of(root: Path) -> dict[str, tuple[int, int]]:
    """Return the (free, total) bytes of the disk that holds the directory; an empty
    result if they cannot be read."""
    with suppress(OSError):
        disk = shutil.disk_usage(root)
        return {str(root): (disk.free, disk.total)}
    return {}
