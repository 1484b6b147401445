"""Readers of the fields of a queue, and the corrections that they suggest."""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Final

from corral.domain.access_list import ROLES, Allowed, is_allowable
from corral.domain.field_correction import FieldCorrection, corrected
from corral.domain.idle_policy import IdleRule
from corral.domain.queue import ANY_TYPE, Gpus, Rates
from corral.domain.queue_faults import MOST_WEIGHT, WEIGHT_RULE
from corral.domain.units import MILLIS_PER_GPU
from corral.wire import field_readers
from corral.wire.field_readers import WrongValue, shown

MOST_GPUS: Final = 1_000_000
BORROW_ONLY: Final = "borrow-only"
_GPUS: Final = corrected("gpus", 8, {"h100": 8, ANY_TYPE: 4})
_RATES: Final = {"h100": 2.5, ANY_TYPE: 1}
_ALLOWED: Final = corrected("allow", ["alice", "bob"])
_OPERATORS: Final = corrected("operators", ["alice"])
_PRIORITIES: Final = corrected("priorities", ["low", "normal"])
_UNTIL: Final = corrected("until", "2030-12-31")
_WEIGHTS: Final = corrected("weight", 2)
_IDLE: Final = corrected("idle", {"warn": "15m", "reclaim": "1h"})
_THEN: Final = corrected("then", BORROW_ONLY, "low")


def gpu_millis(value: Any, *, field: str) -> int:
    """Return the thousandths of a GPU for a number. For example: 8 and 0.5."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        text = f"{shown(value)} is not a valid number of GPUs"
        raise WrongValue(text, correction=corrected(field, 8))
    if not 0 <= value <= MOST_GPUS:
        text = f"{shown(value)} is out of bounds: 0 to {MOST_GPUS:,} GPUs"
        raise WrongValue(text, correction=corrected(field, 8))
    return round(value * MILLIS_PER_GPU)


def own_gpus(value: Any) -> Gpus:
    """Parse the GPUs that a queue owns: 8 (of any type), "h100:8" and {h100: 8, any:
    4}."""
    if isinstance(value, str):
        try:
            kind, millis = field_readers.gpus(value)
        except WrongValue as wrong:
            raise WrongValue(wrong.text, correction=_GPUS) from None
        return ((kind or ANY_TYPE, millis),)
    if not isinstance(value, Mapping):
        value = {ANY_TYPE: value}
    gpus_by_type = {
        _gpu_type(kind): gpu_millis(count, field="gpus")
        for kind, count in value.items()
    }
    return tuple(
        sorted((kind, millis) for kind, millis in gpus_by_type.items() if millis)
    )


def rates(value: Any) -> Rates:
    """Parse the price of a GPU-hour: 2.5 (of any type) and {h100: 2.5, any: 1}."""
    if not isinstance(value, Mapping):
        value = {ANY_TYPE: value}
    rate_by_type = {
        _gpu_type(kind): field_readers.amount(rate, field="rates", example=_RATES)
        for kind, rate in value.items()
    }
    return tuple(sorted(rate_by_type.items()))


def _gpu_type(kind: object) -> str:
    """Return the type of GPU in lower case."""
    if not field_readers.is_gpu_type(str(kind)):
        hint = "write: h100, or any for GPUs of every type"
        raise WrongValue(f"{shown(kind)} is not a valid GPU type", hint)
    return str(kind).lower()


def priority_range(value: Any) -> tuple[int, int]:
    """Parse a list of two priorities. Return (lowest, highest). For example: [low,
    normal]."""
    if not isinstance(value, list) or len(value) != 2:
        text = f"{shown(value)} is not a list of the lowest and the highest priority"
        raise WrongValue(text, correction=_PRIORITIES)
    low, high = (_parse_priority(priority, _PRIORITIES) for priority in value)
    return low, high


def access_list(value: Any) -> Allowed:
    """Read an access list such as [alice, bob, "@operator"] or alice."""
    names = [value] if isinstance(value, str) else value
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        text = f"{shown(value)} is not a list of users"
        raise WrongValue(text, correction=_ALLOWED)
    odd = next((name for name in names if not is_allowable(name)), None)
    if odd is not None:
        text = (
            f"{shown(odd)} is neither a valid user name nor one of {', '.join(ROLES)}"
        )
        raise WrongValue(text, correction=_ALLOWED)
    return tuple(sorted(set(names)))


def operators(value: Any) -> tuple[str, ...]:
    """Return the user names of [alice, bob] or alice, sorted."""
    names = [value] if isinstance(value, str) else value
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        text = f"{shown(value)} is not a list of users"
        raise WrongValue(text, correction=_OPERATORS)
    return tuple(sorted(set(names)))


def _parse_priority(value: Any, correction: FieldCorrection) -> int:
    try:
        return field_readers.priority(value)
    except WrongValue as wrong:
        raise WrongValue(wrong.text, correction=correction) from None


def end_date(value: Any) -> float:
    """Return the wall-clock seconds of a date, or of a date and time; the zone is UTC
    if none is given."""
    try:
        moment = datetime.fromisoformat(value if isinstance(value, str) else "")
    except ValueError:
        text = f"{shown(value)} is not a valid date"
        raise WrongValue(text, correction=_UNTIL) from None
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()


def weight(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise WrongValue(f"{shown(value)} is not a number", correction=_WEIGHTS)
    if not 0 < value <= MOST_WEIGHT:
        text = f"{shown(value)} is out of bounds: {WEIGHT_RULE}"
        raise WrongValue(text, correction=_WEIGHTS)
    return float(value)


def idle_rule(value: Any) -> IdleRule:
    """Parse the rule for idle GPUs: {warn: 15m, reclaim: 1h}, or only one of the two."""
    if (
        not isinstance(value, Mapping)
        or not value
        or value.keys() - {"warn", "reclaim"}
    ):
        text = f"{shown(value)} is not a valid idle rule: set warn, reclaim or both"
        raise WrongValue(text, correction=_IDLE)
    spans = {
        rule_name: _idle_seconds(span, rule_name) for rule_name, span in value.items()
    }
    try:
        return IdleRule(
            warn_seconds=spans.get("warn"), reclaim_seconds=spans.get("reclaim")
        )
    except ValueError:
        text = (
            "reclaim is shorter than warn: jobs would be suspended before the warning"
        )
        raise WrongValue(text, correction=_IDLE) from None


def _idle_seconds(span: Any, word: str) -> float:
    try:
        return field_readers.seconds(span, field=word, low=60.0)
    except WrongValue as wrong:
        raise WrongValue(f"{word}: {wrong.text}", correction=_IDLE) from None


def budget_effect(value: Any) -> int | None:
    return None if value == BORROW_ONLY else _parse_priority(value, _THEN)


def optional_whole(value: Any, *, field: str, high: int, noun: str) -> int | None:
    """Return a whole number from 0 on; None stays None."""
    if value is None:
        return None
    return field_readers.whole(value, field=field, low=0, high=high, noun=noun)
