"""Jobs that asked for it are stopped by the agent itself when the head has been silent
for long."""

from collections.abc import Iterable
from typing import Final

from corral.domain.desired_state import Launch, Stop

MARGIN_SECONDS: Final = 1.5  # the longest time between two looks, and a little


def overdue(launches: Iterable[Launch], silent_seconds: float) -> list[Stop]:
    """Stops for the attempts that must be gone once the silence reaches their
    `self_stop_seconds`.

    The head may replace an attempt from then on, so its stop, grace and all, begins
    earlier; the grace takes at most half of the time. Silence counts from when the
    newest heartbeat that the head recorded was sent, which is never later than when the head
    got it.
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
