"""The file alerts.yaml with the settings of alerts, and the record of sent messages,
which the next head reads."""

from contextlib import suppress
from pathlib import Path

import msgspec

from corral.boot.alerts.senders import receiver_of
from corral.boot.settings import write_atomically
from corral.control.alert_delivery import AlertSettings, Remembered
from corral.domain.errors import CorralError
from corral.ports.log import HeadLogger
from corral.wire.alerts import read_alerts
from corral.wire.spec_reader import read_documents

log = HeadLogger("corral.alerts")


class AlertFiles:
    """Reader of alerts.yaml. It returns the settings of the newest version of the file
    that could be read, or default settings while the file does not exist."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._seen: tuple[int, int] | None = None
        self._asked = AlertSettings()

    def read(self) -> AlertSettings:
        try:
            stat = self._path.stat()
        except OSError:
            self._seen, self._asked = None, AlertSettings()
            return self._asked
        if (mark := (stat.st_mtime_ns, stat.st_size)) != self._seen:
            self._seen = mark
            self._reload_settings()
        return self._asked

    def _reload_settings(self) -> None:
        try:
            (document, *_) = read_documents(self._path)
            alert_file = read_alerts(document)
            receivers = tuple(
                receiver_of(receiver_body, self._path.parent)
                for receiver_body in alert_file.to
            )
            self._asked = AlertSettings(
                rules=alert_file.rules.domain, receivers=receivers
            )
        except (CorralError, ValueError) as error:
            reason = str(error).partition("\n")[0]
            log.warning("alerts_not_read", error=reason)
            previous_settings = self._asked
            warning = f"alerts.yaml is not valid; its changes are not used: {reason}"
            self._asked = AlertSettings(
                rules=previous_settings.rules,
                receivers=previous_settings.receivers,
                trouble=warning,
            )


class DiskMemory:
    """File that keeps the record of sent messages as JSON, with mode 0600. An
    unreadable file counts as empty, as if no message had been sent."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def load(self) -> Remembered:
        with suppress(OSError, ValueError):
            return msgspec.json.decode(self._path.read_bytes(), type=Remembered)
        return Remembered()

    def save(self, remembered: Remembered) -> None:
        try:
            write_atomically(self._path, msgspec.json.encode(remembered).decode())
        except OSError as error:
            log.warning("alerts_not_remembered", error=str(error))
