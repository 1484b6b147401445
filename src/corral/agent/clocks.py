"""The machine's two clocks that everything on a node is told by. In seconds."""

import time


def wall() -> float:
    """Return the wall clock in seconds since 1970. It may be set."""
    return time.clock_gettime(time.CLOCK_REALTIME)


def since_boot() -> float:
    """Return the seconds since the machine's boot, including sleep. This clock cannot be set."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)
