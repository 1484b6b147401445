"""An event loop for descriptors and timers, in one thread."""

import heapq
import select
import time
from collections.abc import Callable
from contextlib import suppress
from itertools import count
from typing import Final

Call = Callable[[], None]
# that the kernel is asked to wait; then it is asked again
LONGEST_SECONDS: Final = 3600.0


class Loop:
    """Event loop: calls a function when a descriptor is ready or a timer is due, until
    `stop`."""

    def __init__(self) -> None:
        self._poll = select.epoll()
        # what to read, to write
        self._watched: dict[int, tuple[Call | None, Call | None]] = {}
        self._due: list[tuple[float, int, Call]] = []
        self._number = count()
        self._going = True

    def now(self) -> float:
        return time.monotonic()

    def later(self, seconds: float, call: Call) -> None:
        """Call the function once, after the given delay.

        The call cannot be cancelled: the function must check whether it is still
        needed.
        """
        heapq.heappush(self._due, (self.now() + seconds, next(self._number), call))

    def watch(
        self, descriptor: int, read: Call | None, write: Call | None = None
    ) -> None:
        """Call `read` or `write` when the descriptor can be read or written without
        waiting. If both are None, stop watching the descriptor."""
        calls, known_calls = (read, write), self._watched.get(descriptor)
        if calls == (known_calls or (None, None)):
            return
        events = select.EPOLLIN * (read is not None) | select.EPOLLOUT * (
            write is not None
        )
        if not events:
            del self._watched[descriptor]
            with suppress(OSError):  # it was closed meanwhile
                self._poll.unregister(descriptor)
            return
        self._watched[descriptor] = calls
        if known_calls is None:
            self._poll.register(descriptor, events)
        else:
            self._poll.modify(descriptor, events)

    def stop(self) -> None:
        self._going = False

    def run(self) -> None:
        while self._going:
            wait_seconds = None
            if self._due:
                wait_seconds = min(
                    max(0.0, self._due[0][0] - self.now()), LONGEST_SECONDS
                )
            ready = self._poll.poll(wait_seconds)
            for descriptor, events, calls in [
                (*ready_pair, self._watched.get(ready_pair[0])) for ready_pair in ready
            ]:
                if calls is None or self._watched.get(descriptor) is not calls:
                    continue  # let go of by a call of this round
                read_callback, write = calls
                if read_callback is not None and events & ~select.EPOLLOUT:
                    read_callback()
                if write is not None and events & ~select.EPOLLIN:
                    write()
            while self._going and self._due and self._due[0][0] <= self.now():
                heapq.heappop(self._due)[2]()
