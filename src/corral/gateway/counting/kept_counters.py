"""Counters of each process of a gateway in a file, so that the head can still add them
after the process was killed.

A process writes its whole counters each KEEP_SECONDS and at its end. What it has counted
since is lost when it is killed, and what the machine has not written to its disk is lost
with its power.
"""

import asyncio
import logging
import os
from collections.abc import Callable, Collection, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final

from corral.gateway.counting.counters import render_counters
from corral.gateway.counting.gateway_metrics import ProcessCounters

log = logging.getLogger(__name__)

KEEP_SECONDS: Final = 0.5
# a file that was not written for this long belongs to a process that has ended
ENDED_SECONDS: Final = 60.0
SUFFIX: Final = ".json"


class KeptCounters:
    """File of the counters of one process.

    Args:
        folder: Folder of the files of all processes.
        own: Counters of this process.
        publish: Brings them up to date.
    """

    def __init__(
        self, folder: Path, own: ProcessCounters, publish: Callable[[], None]
    ) -> None:
        self._own = own
        self._publish = publish
        self._path = folder / f"{own.process}{SUFFIX}"
        self._written = b""
        self._failed = False
        self._timer: asyncio.TimerHandle | None = None

    def start(self, loop: asyncio.AbstractEventLoop) -> None:
        """Begin to write the counters each KEEP_SECONDS."""
        self.write()
        self._timer = loop.call_later(KEEP_SECONDS, self.start, loop)

    def stop(self) -> None:
        """Write the counters for the last time."""
        if self._timer is not None:
            self._timer.cancel()
        self.write()

    def write(self) -> None:
        """Write the counters. A failure is logged, and the gateway goes on."""
        self._publish()
        text = render_counters([self._own])
        try:
            if text == self._written:
                os.utime(self._path)
            else:
                self._replace(text)
            self._failed = False
        except OSError as error:
            self._written = b""  # the file may have been removed
            if not self._failed:
                log.warning("the counters cannot be kept: %s", error)
            self._failed = True

    def _replace(self, text: bytes) -> None:
        self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        staged = self._path.with_suffix(f".{os.getpid()}")
        staged.write_bytes(text)
        staged.replace(self._path)
        self._written = text


def kept_folder(record: Path) -> Path:
    """Return the folder of the counters of the gateway with this record."""
    return record.with_name("gateway-counters")


def read_kept(
    folder: Path, reported: Collection[str], now: float
) -> Iterator[tuple[Path, bytes, bool]]:
    """Yield each file, the JSON text of its counters, and whether its process has ended.

    Args:
        reported: Processes whose files are not needed.
        now: Wall clock of the machine.
    """
    with suppress(OSError):
        for path in sorted(folder.iterdir()):
            if path.suffix != SUFFIX or path.stem in reported:
                continue
            with suppress(OSError):
                has_ended = now - path.stat().st_mtime > ENDED_SECONDS
                yield path, path.read_bytes(), has_ended
