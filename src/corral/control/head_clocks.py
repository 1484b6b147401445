"""The head's two clocks: the serving clock, which measures the silence of nodes and
stops while the head does not run, and a steady wall clock."""

from typing import Final

from corral.ports.clock import Clock

LONGEST_GAP_SECONDS: Final = 2.0


class ServingClock:
    """Clock that counts seconds of service. If the gap between two beats is longer than
    LONGEST_GAP_SECONDS, the head was paused (stopped, suspended, starved), and the gap
    counts as only LONGEST_GAP_SECONDS."""

    def __init__(self, monotonic: float) -> None:
        self._at = monotonic
        self._seconds = 0.0

    def beat(self, monotonic: float) -> None:
        """Record that the head serves at this time of the monotonic clock."""
        self._seconds = self.read(monotonic)
        self._at = monotonic

    def read(self, monotonic: float) -> float:
        return self._seconds + min(max(0.0, monotonic - self._at), LONGEST_GAP_SECONDS)


class SteadyWall:
    """The wall clock at the start of the head, continued by the monotonic clock. If the
    machine's clock is set while the head runs, no job ends early or runs too long."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._offset = clock.wall() - clock.monotonic()

    def read(self) -> float:
        return self._clock.monotonic() + self._offset
