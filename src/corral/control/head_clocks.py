"""The head's two clocks: one for silence, which stands while the head does, and a
steady wall."""

from typing import Final

from corral.ports.clock import Clock

LONGEST_GAP_SECONDS: Final = 2.0


class ServingClock:
    """Seconds of service. A gap between two beats that is longer than
    LONGEST_GAP_SECONDS was a pause of the head (stopped, suspended, starved): it counts
    as that much and no more."""

    def __init__(self, monotonic: float) -> None:
        self._at = monotonic
        self._seconds = 0.0

    def beat(self, monotonic: float) -> None:
        """The head is serving at this moment of the monotonic clock."""
        self._seconds = self.read(monotonic)
        self._at = monotonic

    def read(self, monotonic: float) -> float:
        return self._seconds + min(max(0.0, monotonic - self._at), LONGEST_GAP_SECONDS)


class SteadyWall:
    """The wall clock as it was when the head began, carried on by the monotonic one: a
    clock that is set while the head runs ends no job early and keeps none too long."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._offset = clock.wall() - clock.monotonic()

    def read(self) -> float:
        return self._clock.monotonic() + self._offset
