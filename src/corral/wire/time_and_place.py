"""Readers for the fields of a spec about time and place. As in `field_readers`, there
is one reader for each kind of value."""

import re
from collections.abc import Mapping
from datetime import datetime
from math import isfinite
from typing import Any, Final

from corral.domain.ids import is_name
from corral.domain.placement_constraints import Constraint
from corral.domain.time_point import Moment
from corral.wire import field_readers, signals
from corral.wire.field_readers import WrongValue, shown

MAX_CONSTRAINTS: Final = 32
MAX_VALUES: Final = 256
SIGNALS: Final = ("HUP", "INT", "QUIT", "USR1", "USR2", "ALRM", "TERM", "CONT", "WINCH")
LABEL: Final = re.compile(
    r"[A-Za-z0-9](?:[A-Za-z0-9._/-]{0,251}[A-Za-z0-9])?", re.ASCII
)
_DELAY: Final = re.compile(r"(?:now\+)?((?:\d+(?:\.\d+)?[smhdw])+)", re.ASCII)


def moment(value: Any, *, field: str) -> Moment:
    """Return a moment from text.

    The text is a moment with its zone, "2026-11-22T08:00Z", or a delay after
    submission, "30m".
    """
    example = f"write: {field}: 30m, or a time with its zone: 2026-11-22T08:00Z"
    if isinstance(value, int) and not isinstance(value, bool) and 0 < value < 10**6:
        raise WrongValue(f"{value} has no unit", f"write the unit: {field}: {value}m")
    if not isinstance(value, str):
        raise WrongValue(f"{shown(value)} is not a valid time", example)
    if match := _DELAY.fullmatch(value.strip().lower()):
        return Moment(after_seconds=field_readers.seconds(match.group(1), field=field))
    try:
        when = datetime.fromisoformat(value.strip())
    except ValueError:
        raise WrongValue(f"{shown(value)} is not a valid time", example) from None
    if when.tzinfo is None:
        plain = when.isoformat(timespec="seconds")
        raise WrongValue(
            f"{shown(value)} has no time zone",
            f"write: {field}: {plain}Z, or with +02:00 instead of Z",
        )
    timestamp = when.timestamp()
    if timestamp < 0:
        raise WrongValue(f"{shown(value)} is before 1970", example)
    return Moment(at=timestamp)


def signal_number(value: Any) -> int:
    """Return the number of a signal. For example: USR1, SIGUSR1 or 10."""
    number = signals.number_of(value) if isinstance(value, str) else value
    if type(number) is int and number in map(signals.number_of, SIGNALS):
        return number
    raise WrongValue(
        f"{shown(value)} is not one of: {', '.join(SIGNALS)}", "write: signal: USR1"
    )


def warn(value: Any) -> Any:
    """Convert Slurm's short form of a warning to the long form `warn: {signal: USR1,
    before: 2m}`. The short forms are USR1@120, USR1@2m and USR1."""
    if not isinstance(value, str):
        return value
    name, separator, lead_text = value.partition("@")
    if separator and lead_text.strip().isdecimal():
        lead_text = f"{lead_text.strip()}s"
    return {"signal": name, "before": lead_text} if separator else {"signal": name}


def topology(value: Any) -> Any:
    """Convert a short form of the topology to the long form `topology: {mode: require,
    within: rack}`. The short forms are require:rack, rack and spread."""
    if not isinstance(value, str):
        return value
    mode, colon, within = value.partition(":")
    if colon:
        return {"mode": mode, "within": within}
    return {"within": mode} if mode in ("nvlink", "rack", "pod") else {"mode": mode}


def constraints(value: Any) -> tuple[Constraint, ...]:
    """Return the constraints, sorted by label. For example: `{zone: a, tier: [gold,
    silver], node: {not: n3}}`."""
    example = "write: constraints: {zone: a, node: {not: [n3]}}"
    if not isinstance(value, Mapping):
        raise WrongValue(
            f"{shown(value)} is not a mapping of labels to values", example
        )
    if len(value) > MAX_CONSTRAINTS:
        raise WrongValue(
            f"constraints has {len(value)} labels, but at most {MAX_CONSTRAINTS}"
            " are allowed",
            "remove some of the labels",
        )
    constraint_list = [
        _constraint(label, label_value, example) for label, label_value in value.items()
    ]
    return tuple(sorted(constraint_list, key=lambda one: one.label))


def _constraint(label: Any, value: Any, example: str) -> Constraint:
    if not isinstance(label, str) or LABEL.fullmatch(label) is None:
        raise WrongValue(
            f"{shown(label)} is not a valid label: use letters and digits, with "
            ". _ - / between them",
            example,
        )
    negated = isinstance(value, Mapping)
    if isinstance(value, Mapping):
        if list(value) != ["not"]:
            raise WrongValue(
                f"{label}: {shown(value)} is not a value, a list of values, "
                "or {not: ...}",
                example,
            )
        value = value["not"]
    values = value if isinstance(value, list) else [value]
    if not values or len(values) > MAX_VALUES:
        raise WrongValue(
            f"{label} has {len(values)} values; 1 to {MAX_VALUES} are allowed", example
        )
    return Constraint(
        label=label,
        values=tuple(
            dict.fromkeys(_label_value(label, label_value) for label_value in values)
        ),
        negated=negated,
    )


def _label_value(label: str, value: Any) -> str:
    """Return the value of a label as text. The value true means a label without a
    value; numbers are accepted, too."""
    if value is True:
        return "true"
    if value is False:
        raise WrongValue(
            f"{label}: false is not allowed as the value of a label",
            f"write: constraints: {{{label}: {{not: true}}}}",
        )
    text = value if isinstance(value, str) else shown(value)
    # JSON has no such number
    endless = isinstance(value, float) and not isfinite(value)
    if (
        endless
        or not isinstance(value, str | int | float)
        or LABEL.fullmatch(text) is None
    ):
        raise WrongValue(
            f"{label}: {shown(value)} is not a valid value of a label",
            f"write: constraints: {{{label}: a}}",
        )
    return text


def names(value: Any, *, field: str) -> tuple[str, ...]:
    """Return job names, sorted. The value is one name or a list of names."""
    entries = value if isinstance(value, list) else [value]
    if len(entries) > MAX_VALUES:
        raise WrongValue(
            f"{field} has more than {MAX_VALUES} names", "remove some of the names"
        )
    for entry in entries:
        if not isinstance(entry, str) or not is_name(entry):
            raise WrongValue(
                f"{shown(entry)} is not a valid job name", f"write: {field}: [train]"
            )
    return tuple(sorted(set(entries)))


def truth(value: Any, *, field: str) -> bool:
    """Check that the value is true or false, and return it."""
    if not isinstance(value, bool):
        raise WrongValue(
            f"{shown(value)} is neither true nor false", f"write: {field}: true"
        )
    return value
