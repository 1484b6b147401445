"""The warning that the user's token expires soon. The head reports the expiry in its
answers during the last days of the token."""

from functools import cache
from typing import Final

from corral.boot.clock import SystemClock
from corral.cli.printing import clock_text, note
from corral.client import Client
from corral.domain.units import duration_text

LOG_IN_WARNING_SECONDS: Final = 3600.0


class TellingClient(Client):
    """A client that warns the user, when it is closed, if the token expires soon."""

    def close(self) -> None:
        super().close()
        if self._where.token_ends_at is not None:
            log_in = self._where.log_in
            _warn_of_expiry(
                self._where.token_ends_at, None if log_in is None else log_in.url
            )


@cache
def _warn_of_expiry(ends_at: float, log_in_url: str | None) -> None:
    remaining_seconds = max(0.0, ends_at - SystemClock().wall())
    expiry_text = f"{duration_text(remaining_seconds)}, at {clock_text(ends_at)}"
    if log_in_url is None:
        note(
            f"your token expires in {expiry_text}; before that, ask an admin for a new "
            "one (corral token create NAME), because tokens that you create yourself "
            "expire no later"
        )
    elif (
        remaining_seconds <= LOG_IN_WARNING_SECONDS
    ):  # it lasts for hours: a warning with each command is noise
        note(
            f"your log-in expires in {expiry_text}; to log in again, run: "
            f"corral login --oidc {log_in_url}"
        )
