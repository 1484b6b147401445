"""Replay files of scheduling decisions during which a bug occurred. With such a file,
the decision can be repeated."""

from collections.abc import Callable
from typing import Final

from corral.boot.clock import SystemClock
from corral.boot.settings import ClusterDir, write_atomically

REPLAYS: Final = 20


def keeper_of_replays(
    place: ClusterDir, clock: SystemClock
) -> Callable[[str, str], None]:
    """Return a function that writes a replay file of the decision during which a bug
    occurred. Only the first few bugs of a run are written."""
    written = 0

    def keep(name: str, text: str) -> None:
        nonlocal written
        written += 1
        if written <= REPLAYS:
            place.replays.mkdir(mode=0o700, exist_ok=True)
            write_atomically(place.replays / f"{clock.wall():.3f}-{name}.txt", text)

    return keep
