"""The log of the head: events with a name and fields, written through `logging`.

`boot.head_log` sets up the handlers and what they hide. Nothing is written before that.
"""

import logging
from typing import Any, Final

FIELDS: Final = "fields"  # of a record: its fields, in addition to the event
logging.getLogger("corral").addHandler(logging.NullHandler())


class HeadLogger:
    """One logger. Events have names in snake_case; fields are values that JSON
    supports."""

    __slots__ = ("_logger",)

    def __init__(self, name: str) -> None:
        self._logger = logging.getLogger(name)

    def debug(self, event: str, **fields: Any) -> None:
        self._write_event(logging.DEBUG, event, fields)

    def info(self, event: str, **fields: Any) -> None:
        self._write_event(logging.INFO, event, fields)

    def warning(self, event: str, **fields: Any) -> None:
        self._write_event(logging.WARNING, event, fields)

    def error(self, event: str, **fields: Any) -> None:
        self._write_event(logging.ERROR, event, fields)

    def exception(self, event: str, **fields: Any) -> None:
        """Write an error with the traceback of the exception that is being handled."""
        self._logger.error(event, exc_info=True, extra={FIELDS: fields})

    def _write_event(self, level: int, event: str, fields: dict[str, Any]) -> None:
        if self._logger.isEnabledFor(level):
            self._logger.log(level, event, extra={FIELDS: fields})
