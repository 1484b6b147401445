"""Delay before a job begins again after faults of the cluster. Pure functions.

The first fault in ten minutes is retried at once, because most faults are single ones
and an idle machine costs money. Each further fault doubles the delay. So 20 retries
take at least ten minutes, whatever fails, and a full disk or a lost mount of one minute
cannot use them up.
"""

from collections.abc import Sequence
from typing import Final

WINDOW_SECONDS: Final = 600.0
LONGEST_DELAY_SECONDS: Final = 60.0
MOST_RECENT: Final = 8  # with this many, the delay is the longest already


def recent_faults(fault_times: Sequence[float], now: float) -> tuple[float, ...]:
    """Return the faults that still count, oldest first. Faults in the future, from a
    clock that was ahead, are left out.

    Args:
        fault_times: When attempts ended by faults of the cluster, in seconds since
            1970.
        now: The present moment on the same clock.
    """
    counted = [
        fault_time
        for fault_time in fault_times
        if now - WINDOW_SECONDS < fault_time <= now
    ]
    return tuple(counted[-MOST_RECENT:])


def retry_delay_seconds(earlier_faults: int) -> float:
    """Return the seconds to wait before a restart, after a fault that follows
    `earlier_faults` recent ones."""
    if earlier_faults == 0:
        return 0.0
    return min(LONGEST_DELAY_SECONDS, 2.0 ** (earlier_faults - 1))
