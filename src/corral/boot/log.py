"""The head's own log: one JSON object a line, rotated, with nothing secret in it."""

import logging
import re
from collections.abc import MutableMapping
from logging.handlers import RotatingFileHandler
from pathlib import Path
from typing import Any, Final

import structlog

LOG_BYTES: Final = 8 * 1024 * 1024
LOG_FILES: Final = 3
HIDDEN: Final = "[hidden]"
_SECRET_KEY: Final = re.compile(r"token|secret|password|authorization|cookie|sealed", re.IGNORECASE)
_BEARER: Final = re.compile(r"(?i)\b(bearer\s+)[A-Za-z0-9._~+/=-]{8,}")
Entry = MutableMapping[str, Any]


class Redaction:
    """A processor that hides values under telling names, bearer tokens, and the tokens it knows."""

    def __init__(self, known: tuple[str, ...] = ()) -> None:
        self._known = tuple(word for word in known if word)

    def __call__(self, logger: object, method: str, entry: Entry) -> Entry:
        for key, value in entry.items():
            if _SECRET_KEY.search(key):
                entry[key] = HIDDEN
            elif isinstance(value, str):
                entry[key] = self.cleaned(value)
        return entry

    def cleaned(self, text: str) -> str:
        for word in self._known:
            text = text.replace(word, HIDDEN)
        return _BEARER.sub(rf"\g<1>{HIDDEN}", text)


def configure(file: Path, known_secrets: tuple[str, ...] = ()) -> None:
    """Let structlog and the standard logging of libraries write to the file."""
    handler = RotatingFileHandler(file, maxBytes=LOG_BYTES, backupCount=LOG_FILES)
    file.chmod(0o600)
    shared: list[structlog.types.Processor] = [
        structlog.stdlib.add_log_level,
        structlog.stdlib.add_logger_name,
        structlog.stdlib.ExtraAdder(),
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        structlog.processors.format_exc_info,
        Redaction(known_secrets),
    ]
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=shared,
            processors=[
                structlog.stdlib.ProcessorFormatter.remove_processors_meta,
                structlog.processors.JSONRenderer(),
            ],
        )
    )
    logging.basicConfig(handlers=[handler], level=logging.INFO, force=True)
    for quiet in ("uvicorn.error", "uvicorn.access", "asyncio", "websockets"):
        logging.getLogger(quiet).setLevel(logging.WARNING)
    structlog.configure(
        processors=[*shared, structlog.stdlib.ProcessorFormatter.wrap_for_formatter],
        logger_factory=structlog.stdlib.LoggerFactory(),
        wrapper_class=structlog.stdlib.BoundLogger,
        cache_logger_on_first_use=True,
    )
