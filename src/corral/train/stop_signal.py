"""SIGTERM as a request to save and stop."""

import os
import signal
from types import FrameType
from typing import Any, Final

from corral.train.shim_channel import StopRequest

GRACE_SECONDS: Final = 30.0  # when a bare SIGTERM says nothing about it


class StopSignal:
    """Handler of SIGTERM. `request` is the request that a signal has made, or None."""

    def __init__(self) -> None:
        self.request: StopRequest | None = None
        self._previous: Any = None

    def take(self) -> None:
        """Handle the signal from now on."""
        try:
            self._previous = signal.signal(signal.SIGTERM, self._handle)
        except ValueError:  # not the main thread: requests come by the socket alone
            self._previous = None

    def give_back(self) -> None:
        """Restore the handler that was there before."""
        if self._previous is not None:
            signal.signal(signal.SIGTERM, self._previous)

    def _handle(self, number: int, frame: FrameType | None) -> None:
        """Request a save and a stop. A second signal ends the process at once."""
        if self.request is not None:
            signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)
        notice = b"corral: stopping at the next step; a second SIGTERM ends at once\n"
        os.write(2, notice)  # print is not safe within a signal handler
        self.request = StopRequest(
            save=True, grace_seconds=GRACE_SECONDS, why="SIGTERM"
        )
