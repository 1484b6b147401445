"""Calls that may hang, each in its own thread, so that a hanging call blocks nothing
else."""

import threading
from collections.abc import Callable
from queue import Empty, SimpleQueue
from typing import Generic, TypeVar

T = TypeVar("T")


class GuardedCall(Generic[T]):
    """A function that may hang, called in its own thread. `begin` starts a call, and
    `end` returns its answer. While a call hangs, no other is started."""

    def __init__(self, read: Callable[[], T]) -> None:
        self._read = read
        self._asked: SimpleQueue[None] = SimpleQueue()
        self._answers: SimpleQueue[T | Exception] = SimpleQueue()
        self._busy = False
        threading.Thread(target=self._serve_reads, daemon=True).start()

    def begin(self) -> None:
        if self._busy:
            try:
                self._answers.get_nowait()  # it came too late for the last question
            except Empty:
                return
        self._busy = True
        self._asked.put(None)

    def end(self, seconds: float) -> T | None:
        """Return the answer, or None if it does not arrive in time.

        Raises: any exception of the call.
        """
        try:
            answer = (
                self._answers.get(timeout=seconds)
                if seconds > 0
                else self._answers.get_nowait()
            )
        except Empty:
            return None
        self._busy = False
        if isinstance(answer, Exception):
            raise answer
        return answer

    def _serve_reads(self) -> None:
        while True:
            self._asked.get()
            try:
                self._answers.put(self._read())
            except Exception as trouble:  # noqa: BLE001 - it is passed to the caller
                self._answers.put(trouble)
