"""Time, chance and identity, all through one seam."""

from typing import Protocol


class Clock(Protocol):
    def wall(self) -> float:
        """Seconds since 1970, for people and records; it may jump."""
        ...

    def monotonic(self) -> float:
        """Seconds from an arbitrary start; it never goes back. All waiting is measured
        by it."""
        ...

    def fresh_id(self) -> str:
        """Return 32 hexadecimal digits that are unique."""
        ...
