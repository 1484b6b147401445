"""Reading of the field `watch`: whether steps are counted, and what a hang leads to."""

from collections.abc import Mapping
from typing import Any, Final

from corral.wire import field_readers
from corral.wire.field_readers import WrongValue, shown

AUTO: Final = "auto"
OFF: Final = "off"
RESTART: Final = "restart"
ALERT: Final = "alert"
# ranks wait this long for data, a save or another rank without a hang
LEAST_HANG_SECONDS: Final = 5.0


def expand_watch(value: Any) -> Any:
    """Convert the short forms of `watch`. The values true and on mean the default, and
    false and off mean None: no steps are counted, so that no hang is seen.

    Raises: WrongValue.
    """
    if isinstance(value, Mapping):
        return value
    if value is True or value == "on":
        return {}
    if value is False or value == OFF:
        return None
    hint = "write: watch: {hang: auto, act: restart}, or watch: false"
    if value in (RESTART, ALERT):
        hint = f"write: watch: {{act: {value}}}"
    elif value == AUTO or _is_duration(value):
        hint = f"write: watch: {{hang: {value}}}"
    raise WrongValue(
        f"{shown(value)} is neither true, false nor a mapping of fields to values", hint
    )


def hang_bound(value: Any) -> float | str:
    """Return after how many seconds without a step a job hangs; AUTO for a bound that is
    learned from the job, and OFF for none.

    Raises: WrongValue.
    """
    if value is False or value == OFF:
        return OFF
    if value == AUTO:
        return AUTO
    try:
        seconds = field_readers.seconds(value, field="hang")
    except WrongValue as error:
        is_without_unit = isinstance(value, int) and not isinstance(value, bool)
        hint = error.hint if is_without_unit else "write: hang: 5m, or hang: auto"
        raise WrongValue(error.text, hint) from None
    if seconds < LEAST_HANG_SECONDS:
        least = f"{LEAST_HANG_SECONDS:g}"
        raise WrongValue(
            f"{shown(value)} is shorter than {least} seconds", f"write: hang: {least}s"
        )
    return seconds


def _is_duration(value: Any) -> bool:
    try:
        field_readers.seconds(value, field="hang")
    except WrongValue:
        return False
    return True
