"""Waiting for descriptors and moments, in one thread."""

import heapq
import selectors
import time
from collections.abc import Callable
from itertools import count
from typing import Final

Call = Callable[[], None]
LONGEST_SECONDS: Final = 3600.0  # that a selector is asked to wait; then it is asked again


class Loop:
    """Calls back when a descriptor is ready or a moment has come, until `stop`."""

    def __init__(self) -> None:
        self._selector = selectors.DefaultSelector()
        self._due: list[tuple[float, int, Call]] = []
        self._number = count()
        self._going = True

    def now(self) -> float:
        return time.monotonic()

    def later(self, seconds: float, call: Call) -> None:
        """Call once, after so long. There is no taking back: the call looks whether it is due."""
        heapq.heappush(self._due, (self.now() + seconds, next(self._number), call))

    def watch(self, descriptor: int, read: Call | None, write: Call | None = None) -> None:
        """Call `read` or `write` when it can be done without waiting; neither: watch no more."""
        events = selectors.EVENT_READ * (read is not None)
        events |= selectors.EVENT_WRITE * (write is not None)
        known = descriptor in self._selector.get_map()
        if not events:
            if known:
                self._selector.unregister(descriptor)
        elif known:
            self._selector.modify(descriptor, events, (read, write))
        else:
            self._selector.register(descriptor, events, (read, write))

    def stop(self) -> None:
        self._going = False

    def run(self) -> None:
        while self._going:
            wait_seconds = None
            if self._due:
                wait_seconds = min(max(0.0, self._due[0][0] - self.now()), LONGEST_SECONDS)
            for key, events in self._selector.select(wait_seconds):
                if key.fd not in self._selector.get_map():
                    continue  # let go of by a call of this round
                for call, event in zip(
                    key.data, (selectors.EVENT_READ, selectors.EVENT_WRITE), strict=True
                ):
                    if call is not None and events & event:
                        call()
            while self._going and self._due and self._due[0][0] <= self.now():
                heapq.heappop(self._due)[2]()
