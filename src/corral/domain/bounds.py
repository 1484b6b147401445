"""Bounds on everything that ranks and nodes send: integers, numbers, text and counts.
Pure functions.

The shim checks the messages of its ranks against these bounds (`agent.shim.state`), and
the head checks the messages of its agents (`wire.bounded_decoding`). A value within the
bounds fits into every store and every page.
"""

import re
from collections.abc import Collection, Mapping
from math import isfinite
from typing import Any, Final

MOST_INTEGER: Final = 2**53  # exact in a double, and so in JSON and in a browser
MOST_NUMBER: Final = 2.0**53
MOST_LOSS: Final = 1e300  # a diverging loss is large; sums of it stay finite
# seconds since 1970: the year 5138, still a date for every library
MOST_MOMENT: Final = 1e11
NAME_LETTERS: Final = 256  # an id, a device, a type of GPU, a digest
SENTENCE_LETTERS: Final = 1_000  # a reason, an event
PROBE_LETTERS: Final = 200  # result of a probe of a replica
HOST_LETTERS: Final = 253  # address of a replica: an IP address or a host name
PATH_LETTERS: Final = 4_096
TAIL_LETTERS: Final = 4_096
MOST_ITEMS: Final = 1_024  # of a list, by default
MOST_RANKS: Final = 4_096  # of an attempt on a node
MOST_SAVES: Final = 512  # of an attempt on a node that the head has not recorded yet
MOST_SCALARS: Final = 32  # that a job logs by name
SCALAR_LETTERS: Final = 64  # of such a name
MOST_SIGNALS: Final = 256  # in one heartbeat
MOST_GPUS: Final = 1_024  # of a node
SEEN_BYTES: Final = 1024 * 1024  # one attempt in a heartbeat
# all attempts of a heartbeat; the rest is small
HEARTBEAT_BYTES: Final = 3 * 1024 * 1024

NO_NUL: Final = r"\A[^\0]*\Z"
PLAIN: Final = r"\A[^\0-\x1f\x7f]*\Z"  # of a name, a path: no control characters
HOST: Final = r"\A[0-9A-Za-z.:_-]*\Z"
# of a text for people: lines, tabs
SENTENCE: Final = r"\A[^\0-\x08\x0b\x0c\x0e-\x1f\x7f]*\Z"
_CONTROL: Final = re.compile(r"[\0-\x08\x0b\x0c\x0e-\x1f\x7f]")
_NOT_PLAIN: Final = re.compile(r"[\0-\x1f\x7f]")
_SURROGATE: Final = re.compile(r"[\ud800-\udfff]")


class OutOfBounds(ValueError):
    """Error for a value from a rank or a node that is out of bounds and must not be
    recorded."""


def integer(name: str, value: object, *, least: int = -MOST_INTEGER) -> int:
    """Return the value as an integer from `least` to 2^53. A float with a whole value,
    such as 3.0, counts as an integer. `name` is for the error message. Raises:
    OutOfBounds."""
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if not isinstance(value, int):
        raise OutOfBounds(f"{name} must be an integer, not {_format_value(value)}")
    if not least <= value <= MOST_INTEGER:
        raise OutOfBounds(
            f"{name} must be from {least} to 2^53, not {_format_value(value)}"
        )
    return int(value)


def number(name: str, value: object, *, most: float = MOST_NUMBER) -> float:
    """Return the value as a finite number of at most `most`. `name` is for the error
    message. Raises: OutOfBounds."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise OutOfBounds(f"{name} must be a number, not {_format_value(value)}")
    if not -most <= value <= most:  # false for NaN as well
        raise OutOfBounds(
            f"{name} must be finite and at most {most:.3g}, not {_format_value(value)}"
        )
    return float(value)


def text(name: str, value: object, *, letters: int = NAME_LETTERS) -> str:
    """Return the value as one line of at most `letters` characters that every store can
    hold. Raises: OutOfBounds."""
    if not isinstance(value, str):
        raise OutOfBounds(f"{name} must be text, not {_format_value(value)}")
    if len(value) > letters:
        raise OutOfBounds(
            f"{name} has {len(value):,} characters; at most {letters:,} are allowed"
        )
    if _NOT_PLAIN.search(value) or not is_utf8(value):
        raise OutOfBounds(
            f"{name} contains a control character or an unpaired surrogate"
        )
    return value


def cut(value: str, letters: int) -> str:
    """Return at most `letters` characters from the beginning of a text for people.
    Characters that no store can hold are replaced."""
    shortened_text = value if len(value) <= letters else f"{value[: letters - 3]}..."
    return _CONTROL.sub("?", printed(shortened_text))


def printed(value: str) -> str:
    """Return the output of a program with NULs and unpaired surrogates replaced."""
    value = value.replace("\0", "?")
    return value if is_utf8(value) else _SURROGATE.sub("?", value)


def is_utf8(value: str) -> bool:
    """Return whether the text can be encoded as UTF-8, that is, has no unpaired
    surrogate."""
    return value.isascii() or _SURROGATE.search(value) is None


def is_finite(value: float | None) -> bool:
    """Return whether the value is a finite number or None, which means not measured."""
    return value is None or isfinite(value)


def share(value: float) -> float:
    """Return the value as a share from 0 to 1; NaN counts as 0."""
    return min(1.0, value) if value > 0 else 0.0


def distinct(name: str, keys: Collection[object]) -> None:
    """Refuse keys of which two are equal. `name` is the noun for the error message.
    Raises: OutOfBounds."""
    if len(set(keys)) < len(keys):
        raise OutOfBounds(f"two of the {name} have the same name")


def field(message: Mapping[str, Any], name: str, default: object) -> Any:
    """Return a field of a message, or the default if the field is absent or null."""
    value = message.get(name)
    return default if value is None else value


def _format_value(value: object) -> str:
    """Return a text of the value for an error message. It is short, however large the
    value is."""
    if isinstance(value, int) and not -MOST_INTEGER <= value <= MOST_INTEGER:
        return f"an integer of {value.bit_length()} bits"
    if isinstance(value, str | bytes | list | dict):
        return f"{type(value).__name__} of length {len(value)}"
    return repr(value)[:40]
