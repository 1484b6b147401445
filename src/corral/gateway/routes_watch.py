"""Watch on the routes file: a new state is taken when the file has changed."""

import asyncio
import logging
from pathlib import Path
from typing import Final

from corral.gateway.gateway_core import GatewayCore
from corral.gateway.routes_file import RoutesInvalid, read_routes_file

log = logging.getLogger(__name__)

WATCH_SECONDS: Final = 0.1


class RoutesWatch:
    """Reader of the routes file, at the start and after each change."""

    def __init__(self, core: GatewayCore, path: Path, host: str) -> None:
        self._core = core
        self._path = path
        self._host = host
        self._mark = self._current_mark()
        self._timer: asyncio.TimerHandle | None = None

    def start(self, loop: asyncio.AbstractEventLoop) -> None:
        """Read the file, and look for changes from now on. Raises: RoutesInvalid."""
        self._core.update_routes(read_routes_file(self._path, host=self._host))
        self._schedule(loop)

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def _schedule(self, loop: asyncio.AbstractEventLoop) -> None:
        self._timer = loop.call_later(WATCH_SECONDS, self._look, loop)

    def _look(self, loop: asyncio.AbstractEventLoop) -> None:
        self._schedule(loop)
        mark = self._current_mark()
        if mark == self._mark:
            return
        self._mark = mark
        try:
            routes = read_routes_file(self._path, host=self._host)
        except RoutesInvalid as error:
            log.warning("the routes stay as they are: %s", error.message)
            return
        if routes.version < self._core.version:
            log.warning(
                "the routes stay as they are: version %d is older than %d",
                routes.version,
                self._core.version,
            )
            return
        self._core.update_routes(routes)
        log.info("routes of version %d are in use", routes.version)

    def _current_mark(self) -> tuple[int, int, int] | None:
        try:
            status = self._path.stat()
        except OSError:
            return None
        return status.st_mtime_ns, status.st_size, status.st_ino
