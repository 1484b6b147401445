"""The machine's two clocks that everything on a node is told by. In seconds."""

import time


def wall() -> float:
    """Since 1970; it may be set."""
    return time.clock_gettime(time.CLOCK_REALTIME)


def since_boot() -> float:
    """Since the machine's boot, also while it sleeps: nobody can set this clock."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)
