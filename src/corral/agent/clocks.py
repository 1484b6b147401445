"""The two clocks of the machine, in seconds; all times on a node come from them."""

import time


def wall() -> float:
    """Return the wall clock in seconds since 1970. The clock may be set, and so may
    jump."""
    return time.clock_gettime(time.CLOCK_REALTIME)


def since_boot() -> float:
    """Return the seconds since the machine's boot, including sleep. This clock cannot
    be set."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)
