"""Conversion between names and numbers of signals. No I/O."""

import signal
from typing import Final, Literal

To = Literal["ranks", "batch", "all"]
NAMES: Final = tuple(
    signals.name.removeprefix("SIG") for signals in sorted(signal.Signals)
)


def number_of(text: str) -> int | None:
    """Return the number of a signal; None if there is no such signal. For example:
    USR1, SIGUSR1 or 10."""
    signal_name = text.strip().upper().removeprefix("SIG")
    if signal_name.isascii() and signal_name.isdecimal():
        number = int(signal_name[:9])
        return number if number in signal.valid_signals() else None
    return int(signal.Signals[f"SIG{signal_name}"]) if signal_name in NAMES else None


def name_of(number: int) -> str:
    """Return the name of a signal, for example USR1 for 10; the number as text if it
    has no name."""
    try:
        return signal.Signals(number).name.removeprefix("SIG")
    except ValueError:
        return str(number)
