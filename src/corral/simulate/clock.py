"""Clocks of a head in virtual time. The wall clock may be stepped; the monotonic clock
may not."""

from random import Random

from corral.simulate.virtual_loop import VirtualLoop

WALL_AT_START = 1_790_000_000.0


class SimulatedClock:
    """Implementation of ports.Clock. `wall_step_seconds`: by how much an operator or
    NTP has stepped the wall clock."""

    def __init__(self, loop: VirtualLoop, chance: Random) -> None:
        self._loop = loop
        self._chance = chance
        self.wall_step_seconds = 0.0

    def wall(self) -> float:
        return WALL_AT_START + self._loop.time() + self.wall_step_seconds

    def monotonic(self) -> float:
        return 1000.0 + self._loop.time()

    def fresh_id(self) -> str:
        return f"{self._chance.getrandbits(128):032x}"
