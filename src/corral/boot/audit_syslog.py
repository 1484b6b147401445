"""Export of the audit log to a syslog server (RFC 5424), independent of the rest of the
head.

Entries are read from the store once they are durable, so no request waits for the
syslog server. While the server accepts no messages, entries wait in the store. Beyond a
limit, the oldest entries are skipped and counted.
"""

import asyncio
import os
import socket
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from corral.boot.settings import (
    ClusterDir,
    ClusterSettings,
    read_json,
    syslog_target,
    write_atomically,
)
from corral.domain.errors import CorralError, Trouble
from corral.domain.users import AuditEntry
from corral.ports.log import HeadLogger
from corral.ports.store import Store

log = HeadLogger("corral.audit")
PLACE_FILE: Final = "audit-syslog.json"  # number of the newest entry that was sent
LOOK_SECONDS: Final = 1.0
BATCH: Final = 500
WAITING_MOST: Final = 10_000  # entries that wait for a syslog that takes none
MESSAGE_BYTES: Final = 2048  # RFC 5424, section 6.1: what a receiver should take
VALUE_LETTERS: Final = 100
FACILITY: Final = 13  # log audit
NOTICE: Final = 5
WARNING: Final = 4
# RFC 5612: the number for documentation, as Corral has none
ENTERPRISE: Final = "corral@32473"
_REFUSED_BY: Final = (OSError, UnicodeError)  # what a socket and a name's lookup raise


def syslog_of(
    place: ClusterDir, settings: ClusterSettings, store: Store
) -> "AuditSyslog | None":
    """Return the sender that `corral up --audit-syslog` asked for."""
    if settings.audit_syslog is None:
        return None
    folder = Path(settings.shared_state) if settings.shared_state else place.root
    return AuditSyslog(
        store=store,
        address=settings.audit_syslog,
        head=settings.head_name,
        place=folder / PLACE_FILE,
    )


def message_of(entry: AuditEntry, head: str) -> bytes:
    """Return the entry as one syslog message of RFC 5424."""
    level = NOTICE if entry.accepted else WARNING
    iso_timestamp = datetime.fromtimestamp(entry.at, UTC).isoformat(
        timespec="milliseconds"
    )
    result = "accepted" if entry.accepted else f"refused {entry.code}"
    values = {
        "number": entry.number,
        "by": entry.by,
        "kind": entry.kind,
        "source": entry.source,
        "token": entry.token or "",
        "what": entry.what,
        "on": entry.on,
        "result": result,
        "count": entry.count,
        "link": entry.link,
    }
    fields = " ".join(
        f'{name}="{_escape_param_value(str(value))}"' for name, value in values.items()
    )
    moment = iso_timestamp.replace("+00:00", "Z")
    header = f"<{FACILITY * 8 + level}>1 {moment} {head} corral {os.getpid()} audit"
    message = f"{header} [{ENTERPRISE} {fields}] {_replace_unprintable(entry.detail)}".rstrip()
    return message.encode()[:MESSAGE_BYTES].decode(errors="ignore").encode()


def _escape_param_value(value: str) -> str:
    """Return the value of structured data, escaped by RFC 5424 section 6.3.3 and cut if
    it is too long."""
    plain = _replace_unprintable(value)[:VALUE_LETTERS]
    return plain.replace("\\", "\\\\").replace('"', '\\"').replace("]", "\\]")


def _replace_unprintable(text: str) -> str:
    """Return the text with unprintable characters replaced, so that a receiver does not
    split it into two lines."""
    return "".join(
        character if character.isprintable() else "\ufffd" for character in text
    )


@dataclass(slots=True, kw_only=True)
class AuditSyslog:
    """Sender of audit entries in their order. `dropped` counts the entries that were
    skipped since the start."""

    store: Store
    address: str
    head: str
    place: Path
    dropped: int = 0
    _failing: str = ""
    _socket: socket.socket | None = None

    async def run(self) -> None:
        """Send new entries once a second, as long as this head leads."""
        try:
            sent_number = await self._load_last_sent_number()
            while True:
                await asyncio.sleep(LOOK_SECONDS)
                with suppress(Trouble):  # the store is asked again a second later
                    sent_number = await self.send_after(sent_number)
        finally:
            self.close()

    def trouble(self) -> str:
        """Return a sentence for `corral status` about entries that could not be sent;
        "" otherwise."""
        sentences = []
        if self._failing:
            sentences.append(
                f"the audit log cannot be sent to the syslog {self.address}: "
                f"{self._failing}"
            )
        if self.dropped:
            sentences.append(
                f"{self.dropped:,} entries of the audit log were skipped and not sent "
                "to the syslog"
            )
        return "; ".join(sentences)

    async def send_after(self, sent: int) -> int:
        """Send the entries after number `sent`. Return the number of the last entry
        that was sent or skipped."""
        sent = await self._leave_out(sent)
        audit_entries = await self.store.audit(after=sent, limit=BATCH)
        initial_number = sent
        for entry in audit_entries:
            if not await self._send(message_of(entry, self.head)):
                break
            sent = entry.number
        if sent != initial_number:
            text = f'{{"number": {sent}}}'
            await asyncio.to_thread(write_atomically, self.place, text)
        return sent

    async def _leave_out(self, sent: int) -> int:
        newest_number = await self._newest()
        oldest = max(sent, newest_number - WAITING_MOST)
        self.dropped += oldest - sent
        return oldest

    async def _load_last_sent_number(self) -> int:
        with suppress(CorralError, KeyError, TypeError, ValueError):
            return int((read_json(self.place) or {})["number"])
        return await self._newest()

    async def _newest(self) -> int:
        newest_entries = await self.store.audit(limit=1)
        return newest_entries[0].number if newest_entries else 0

    async def _send(self, message: bytes) -> bool:
        """Send a message. Return whether it was accepted. The call does not block: if a
        buffer is full, the message is sent again a second later."""
        try:
            if self._socket is None:
                self._socket = await self._opened()
            self._socket.send(message)
        except _REFUSED_BY as error:
            self.close()
            reason = getattr(error, "strerror", None) or type(error).__name__
            if reason != self._failing:
                log.warning("syslog_takes_nothing", address=self.address, error=reason)
            self._failing = reason
            return False
        self._failing = ""
        return True

    async def _opened(self) -> socket.socket:
        target = syslog_target(self.address)
        if isinstance(target, str):
            family = socket.AF_UNIX
            peer: object = target
        else:
            loop = asyncio.get_running_loop()
            addresses = await loop.getaddrinfo(*target, type=socket.SOCK_DGRAM)
            family, *_, peer = addresses[0]
        datagram_socket = socket.socket(family, socket.SOCK_DGRAM)
        datagram_socket.setblocking(False)
        try:
            datagram_socket.connect(peer)  # type: ignore[arg-type]
        except OSError:
            datagram_socket.close()
            raise
        return datagram_socket

    def close(self) -> None:
        """Close the socket. The next entry opens a new one."""
        if self._socket is not None:
            self._socket.close()
            self._socket = None
