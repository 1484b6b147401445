"""Signals by their names and numbers. Pure."""

import signal
from typing import Final, Literal

To = Literal["ranks", "batch", "all"]
NAMES: Final = tuple(
    signals.name.removeprefix("SIG") for signals in sorted(signal.Signals)
)


def number_of(text: str) -> int | None:
    """Return the number of USR1, SIGUSR1 or 10; None if it is not a signal."""
    signal_name = text.strip().upper().removeprefix("SIG")
    if signal_name.isascii() and signal_name.isdecimal():
        number = int(signal_name[:9])
        return number if number in signal.valid_signals() else None
    return int(signal.Signals[f"SIG{signal_name}"]) if signal_name in NAMES else None


def name_of(number: int) -> str:
    """USR1 of 10; a number that has no name is itself."""
    try:
        return signal.Signals(number).name.removeprefix("SIG")
    except ValueError:
        return str(number)
