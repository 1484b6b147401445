"""The head's own log: one JSON object per line, rotated, without secrets."""

import json
import logging
import re
from collections.abc import MutableMapping
from datetime import UTC, datetime
from logging.handlers import RotatingFileHandler
from pathlib import Path
from typing import Any, Final

from corral.ports.log import FIELDS

LOG_BYTES: Final = 8 * 1024 * 1024
LOG_FILES: Final = 3
HIDDEN: Final = "[hidden]"
_SECRET_KEY: Final = re.compile(
    r"token|secret|password|authorization|cookie|sealed", re.IGNORECASE
)
_BEARER: Final = re.compile(r"(?i)\b(bearer\s+)[A-Za-z0-9._~+/=-]{8,}")
Entry = MutableMapping[str, Any]


class Redaction:
    """Filter that hides values whose names denote secrets, bearer tokens, and
    registered tokens."""

    def __init__(self, known: tuple[str, ...] = ()) -> None:
        self._known = [secret for secret in known if secret]

    def hide(self, word: str) -> None:
        """Keep one more token out of the log."""
        if word and word not in self._known:
            self._known.append(word)

    def __call__(self, entry: Entry) -> Entry:
        for key, value in entry.items():
            if _SECRET_KEY.search(key):
                entry[key] = HIDDEN
            elif isinstance(value, str):
                entry[key] = self.cleaned(value)
        return entry

    def cleaned(self, text: str) -> str:
        for secret in self._known:
            text = text.replace(secret, HIDDEN)
        return _BEARER.sub(rf"\g<1>{HIDDEN}", text)


class JsonLines(logging.Formatter):
    """Formatter that writes a record as one JSON object: its own fields, then the
    fields of every line."""

    def __init__(self, redaction: Redaction) -> None:
        super().__init__()
        self._redaction = redaction

    def format(self, record: logging.LogRecord) -> str:
        entry: Entry = {
            **getattr(record, FIELDS, {}),
            "event": record.getMessage(),
            "level": record.levelname.lower(),
            "logger": record.name,
            "timestamp": _time_of(record.created),
        }
        if record.exc_info:
            entry["exception"] = self.formatException(record.exc_info)
        return json.dumps(self._redaction(entry), default=repr)


def _time_of(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat().replace("+00:00", "Z")


def configure(file: Path) -> Redaction:
    """Direct the logs of Corral and the libraries to the file. Return the filter that
    keeps tokens out of it."""
    redaction = Redaction()
    handler = RotatingFileHandler(file, maxBytes=LOG_BYTES, backupCount=LOG_FILES)
    file.chmod(0o600)
    handler.setFormatter(JsonLines(redaction))
    logging.basicConfig(handlers=[handler], level=logging.INFO, force=True)
    for quiet in ("uvicorn.error", "uvicorn.access", "asyncio", "websockets"):
        logging.getLogger(quiet).setLevel(logging.WARNING)
    return redaction
