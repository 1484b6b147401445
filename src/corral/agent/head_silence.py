"""Decision about which attempts the agent itself stops when the head has been silent
for long. Only jobs that request this are affected."""

from collections.abc import Iterable
from typing import Final

from corral.domain.desired_state import Launch, Stop

MARGIN_SECONDS: Final = 1.5  # the longest time between two looks, and a little


def overdue(launches: Iterable[Launch], silent_seconds: float) -> list[Stop]:
    """Return stops for the attempts that must be gone once the head has been silent for
    their `self_stop_seconds`.

    The head may replace an attempt from then on, so the stop and its grace period begin
    earlier; the grace period takes at most half of the time. The silence counts from
    when the agent sent the newest heartbeat that the head recorded, which is never
    later than when the head received it.
    """
    stops = []
    for launch in launches:
        limit_seconds = launch.self_stop_seconds
        if limit_seconds is None:
            continue
        grace_seconds = min(launch.grace_seconds, limit_seconds / 2)
        if silent_seconds >= limit_seconds - grace_seconds - MARGIN_SECONDS:
            reason = f"the head was silent for {silent_seconds:.0f} s (self_stop)"
            stops.append(
                Stop(key=launch.key, grace_seconds=grace_seconds, save=True, why=reason)
            )
    return stops
