"""Interface of time, randomness and unique identifiers."""

from typing import Protocol


class Clock(Protocol):
    def wall(self) -> float:
        """Return wall-clock seconds since 1970, for users and records. The clock may
        jump."""
        ...

    def monotonic(self) -> float:
        """Return seconds from an arbitrary start. The clock never goes back, and all
        waiting is measured by it."""
        ...

    def fresh_id(self) -> str:
        """Return 32 hexadecimal digits that are unique."""
        ...
