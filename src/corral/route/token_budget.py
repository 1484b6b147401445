"""Budget of tokens as one process of a gateway grants its part of it."""

from typing import Final

ROUNDING: Final = 0.5


class TokenBudget:
    """Part of a budget of tokens.

    The head counts what all gateways have used, and grants each process a part of the
    rest. The part is counted from the tokens that the head had seen of this process: what
    it has not seen yet is subtracted here.

    Attributes:
        finished: Tokens of ended requests since the process began; it only grows.
        refused: Requests that were refused, since the process began.
    """

    __slots__ = ("_base", "_part", "_reserved", "finished", "refused")

    def __init__(self, finished: int = 0, refused: int = 0) -> None:
        self.finished = finished
        self.refused = refused
        self._reserved = 0
        self._part = 0.0
        self._base = finished

    def grant(self, part: float, seen: int | None) -> None:
        """Take a new part.

        Args:
            seen: Tokens of this process that the head had counted when it made the part;
                None: it has not seen the process yet.
        """
        self._part = part
        self._base = self.finished if seen is None else min(seen, self.finished)

    @property
    def left(self) -> float:
        """Tokens that may still be reserved."""
        return self._part - self.unseen

    @property
    def unseen(self) -> int:
        """Tokens that were used or reserved since the head made the part."""
        return self.finished - self._base + self._reserved

    def has_room(self, tokens: int) -> bool:
        """Return whether this number of tokens may be reserved."""
        return tokens <= self.left + ROUNDING

    def reserve(self, tokens: int) -> None:
        """Reserve the tokens that a request is expected to use."""
        self._reserved += tokens

    def finish(self, used: int, reserved: int) -> None:
        """Count the end of a request.

        Args:
            used: Tokens that it has used.
            reserved: Tokens that were reserved for it.
        """
        self._reserved -= reserved
        self.finished += used
