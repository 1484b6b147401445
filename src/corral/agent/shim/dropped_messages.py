"""Messages of ranks that were dropped: they are counted, and the count is written to
the log from time to time."""

from collections.abc import Callable
from typing import Final

from corral.agent.shim.event_loop import Loop
from corral.domain.bounds import cut

SECONDS: Final = 60.0  # between two lines in the log
WHY_LETTERS: Final = 200


class Drops:
    """Counter of dropped messages of one attempt. `say` is called with a sentence about
    them, at a limited rate."""

    def __init__(self, loop: Loop, say: Callable[[str], None]) -> None:
        self.count = 0
        self._loop = loop
        self._say = say
        self._told = 0
        self._why = ""
        self._waits = False
        self._told_at = float("-inf")

    def note(self, why: str) -> None:
        """Count a dropped message; `why` is the reason."""
        self.count += 1
        self._why = cut(why, WHY_LETTERS)
        remaining_seconds = self._told_at + SECONDS - self._loop.now()
        if remaining_seconds <= 0:
            self._report_drops()
        elif not self._waits:
            self._waits = True
            self._loop.later(remaining_seconds, self._report_drops)

    def _report_drops(self) -> None:
        new_drops, self._told = self.count - self._told, self.count
        self._waits, self._told_at = False, self._loop.now()
        if new_drops:
            count_text = "a message" if new_drops == 1 else f"{new_drops} messages"
            self._say(f"dropped {count_text} to CORRAL_SOCKET: {self._why}")
