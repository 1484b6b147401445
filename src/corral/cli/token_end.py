"""The warning that a token ends soon, which the head gives with each answer in its last days."""

from functools import cache

from corral.boot.clock import SystemClock
from corral.cli.output import clock_text, note
from corral.client import Client
from corral.domain.units import duration_text


class TellingClient(Client):
    """A client that warns a person, once a command, of the end of the token."""

    def close(self) -> None:
        super().close()
        if self._where.token_ends_at is not None:
            _warn(self._where.token_ends_at)


@cache
def _warn(ends_at: float) -> None:
    left = max(0.0, ends_at - SystemClock().wall())
    note(
        f"your token ends in {duration_text(left)}, at {clock_text(ends_at)}; before that, run: "
        "corral token create; or ask an admin for another"
    )
