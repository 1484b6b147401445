"""Readers of the values that only the documents of services have. As in
`field_readers`, there is one reader for each kind of value."""

import math
import re
from typing import Any, Final

from corral.domain.access_list import is_allowable
from corral.domain.ids import QueueName, is_name
from corral.domain.service import MOST_REPLICAS
from corral.domain.service_access import Adapter
from corral.domain.units import bytes_of, share_text
from corral.wire import field_readers
from corral.wire.fallback_target import FallbackTarget
from corral.wire.field_readers import WrongValue, shown

LONGEST_NAME: Final = 53  # its replicas add _ and a number of up to 9 digits
LONGEST_MODEL_NAME: Final = 200
MOST_MODELS: Final = 100
MOST_BODY_BYTES: Final = 2**30
MOST_SHARE: Final = 0.5
MOST_ADAPTERS: Final = 1000
MOST_LOADED_ADAPTERS: Final = 256
MOST_ALLOWED: Final = 1000

_RANGE: Final = re.compile(r"(\d{1,5})(?:\.\.(\d{1,5}))?", re.ASCII)
_MILLISECONDS: Final = re.compile(r"(\d{1,9}(?:\.\d{1,3})?)\s*ms", re.ASCII)
_PERCENT: Final = re.compile(r"(\d{1,3}(?:\.\d{1,3})?)\s*%", re.ASCII)
_PROBE: Final = re.compile(r"/[!-\"$-~]{0,999}", re.ASCII)


def service_name(value: Any) -> str:
    """Return the name of a service. Its replicas have longer names."""
    name = field_readers.name(value, field="name", noun="name of a service")
    if len(name) > LONGEST_NAME:
        raise WrongValue(
            f"the name has {len(name)} characters; at most {LONGEST_NAME} are allowed",
            f"write: name: {name[:40].rstrip('._-')}",
        )
    return name


def replicas(value: Any) -> tuple[int, int]:
    """Return (least, most) replicas for 3 and "1..8"."""
    example = "write: replicas: 1..8, or replicas: 2"
    if isinstance(value, bool) or not isinstance(value, int | str):
        raise WrongValue(f"{shown(value)} is not a valid number of replicas", example)
    match = _RANGE.fullmatch(str(value))
    if match is None:
        raise WrongValue(f"{shown(value)} is not a valid range of replicas", example)
    low = int(match[1])
    high = low if match[2] is None else int(match[2])
    if low > high:
        raise WrongValue(
            f"{shown(value)} is not a valid range: the lower number must come first",
            f"write: replicas: {high}..{low}",
        )
    if high > MOST_REPLICAS:
        raise WrongValue(
            f"{shown(value)} is out of bounds: a service can have 0 to "
            f"{MOST_REPLICAS:,} replicas",
            f"write: replicas: {min(low, MOST_REPLICAS)}..{MOST_REPLICAS}",
        )
    return low, high


def seconds(value: Any, *, field: str, example: str, low: float, high: float) -> float:
    """Return the seconds for "500ms", "90s" or "1h30m", to the millisecond, within
    bounds."""
    hint = f"write: {field}: {example}"
    if isinstance(value, str) and (match := _MILLISECONDS.fullmatch(value.strip())):
        amount = float(match[1]) / 1000
    elif isinstance(value, int | float) and not isinstance(value, bool):
        raise WrongValue(
            f"{shown(value)} has no unit", f"write the unit, as in: {field}: {example}"
        )
    else:
        try:
            amount = field_readers.seconds(value, field=field)
        except WrongValue as error:
            raise WrongValue(error.text, hint) from None
    if not low <= amount <= high:
        raise WrongValue(
            f"{shown(value)} is out of bounds: {low:g} to {high:g} seconds", hint
        )
    return round(amount, 3)


def size(value: Any, *, field: str, example: str, most: int) -> int:
    """Return the bytes for "10MB" or "64KiB"."""
    hint = f"write: {field}: {example}"
    if not isinstance(value, str) or value.strip().isdigit():
        raise WrongValue(f"{shown(value)} is not a size with a unit", hint)
    try:
        amount = bytes_of(value)
    except (ValueError, OverflowError):
        raise WrongValue(f"{shown(value)} is not a valid size", hint) from None
    if not 0 < amount <= most:
        raise WrongValue(
            f"{shown(value)} is out of bounds: 1 B to {most // 2**20:,} MiB", hint
        )
    return amount


def share(value: Any) -> float:
    """Return the share, from 0 to 1, for "5%" or 0.05."""
    hint = "write: share: 5%"
    if isinstance(value, str) and (match := _PERCENT.fullmatch(value.strip())):
        amount = round(float(match[1]) / 100, 5)
    elif isinstance(value, float) and math.isfinite(value) and value < 1:
        amount = round(value, 5)
    else:
        raise WrongValue(f"{shown(value)} is not a valid share of the requests", hint)
    if not 0 < amount <= MOST_SHARE:
        raise WrongValue(
            f"{shown(value)} is out of bounds: above 0, at most {share_text(MOST_SHARE)}",
            hint,
        )
    return amount


def canary(value: Any) -> Any:
    """Return `canary: off` as a mapping, whose trial has no duration, and `canary: on`
    as one with the defaults; other values unchanged."""
    if value is False or value == "off":
        return {"for": None}
    return {} if value is True or value == "on" else value


def probe(value: Any) -> str:
    """Return the path of a probe."""
    if isinstance(value, str) and _PROBE.fullmatch(value):
        return value
    raise WrongValue(
        f"{shown(value)} is not a valid path of a probe: it must begin with /, and "
        "have no spaces",
        "write the path alone: probe: /health",
    )


def model(value: Any) -> str:
    """Return the model: where it lies, or its name."""
    example = "model: hf://org/name"
    return field_readers.text(value, noun="model", example=example, most=1000)


def model_names(value: Any) -> tuple[str, ...]:
    """Return names of models, each of them once."""
    example = "write: models: [small, small-chat]"
    names = [value] if isinstance(value, str) else value
    if not isinstance(names, list):
        raise WrongValue(f"{shown(value)} is not a list of names", example)
    if len(names) > MOST_MODELS:
        raise WrongValue(
            f"{len(names):,} names are given; at most {MOST_MODELS} are allowed",
            "remove some of the names",
        )
    return tuple(dict.fromkeys(model_name(name, hint=example) for name in names))


def model_name(value: Any, *, hint: str) -> str:
    """Return the name of a model, as a request gives it."""
    if isinstance(value, str) and is_model_name(value):
        return value
    raise WrongValue(
        f"{shown(value)} is not a valid name of a model: use 1 to "
        f"{LONGEST_MODEL_NAME} characters without spaces and without @",
        hint,
    )


def is_model_name(text: str) -> bool:
    """Return whether requests can use this name of a model. A name with @ is that of a
    revision."""
    is_short = 0 < len(text) <= LONGEST_MODEL_NAME
    return is_short and text.isprintable() and not re.search(r"[\s@]", text)


def engine(value: Any, *, among: tuple[str, ...]) -> str:
    """Return the name of an engine."""
    word = value.lower() if isinstance(value, str) else value
    return field_readers.choice(word, field="engine", among=among)


def adapters(value: Any) -> tuple[Adapter, ...]:
    """Return the adapters, sorted by name."""
    example = "write: adapters: {legal: /data/legal-lora}"
    if not isinstance(value, dict):
        raise WrongValue(
            f"{shown(value)} is not a mapping of names to adapters", example
        )
    if len(value) > MOST_ADAPTERS:
        raise WrongValue(
            f"{len(value):,} adapters are given; at most {MOST_ADAPTERS:,} are allowed",
            "remove some of the adapters",
        )
    read = []
    for name, source in value.items():
        if ":" in model_name(name, hint=example):
            raise WrongValue(
                f"{shown(name)} is not a valid name of an adapter: a colon separates "
                "the names of a model and an adapter",
                example,
            )
        if not isinstance(source, str):
            raise WrongValue(
                f"{shown(source)} does not say where the adapter {name} lies", example
            )
        read.append(Adapter(name=name, source=source))
    return tuple(sorted(read, key=lambda adapter: adapter.name))


def allowed_users(value: Any) -> tuple[str, ...]:
    """Return names of users, and @ROLE for the users of a role."""
    example = 'write: users: [alice, "@operator"]'
    names = _names(value, noun="users", example=example)
    for name in names:
        if not isinstance(name, str) or not is_allowable(name):
            raise WrongValue(
                f"{shown(name)} is neither a user nor a role, such as @user", example
            )
    return tuple(dict.fromkeys(names))


def allowed_queues(value: Any) -> tuple[QueueName, ...]:
    """Return names of queues."""
    example = "write: queues: [research]"
    names = _names(value, noun="queues", example=example)
    for name in names:
        if not isinstance(name, str) or not is_name(name):
            raise WrongValue(f"{shown(name)} is not a valid name of a queue", example)
    return tuple(dict.fromkeys(QueueName(name) for name in names))


def _names(value: Any, *, noun: str, example: str) -> list[Any]:
    names = [value] if isinstance(value, str) else value
    if not isinstance(names, list):
        raise WrongValue(f"{shown(value)} is not a list of {noun}", example)
    if len(names) > MOST_ALLOWED:
        raise WrongValue(
            f"{len(names):,} {noun} are given; at most {MOST_ALLOWED:,} are allowed",
            "name roles or queues instead of users",
        )
    return names


def fallback_url(value: Any) -> str:
    """Return the address of another provider's API."""
    hint = "write: url: https://api.example.com/v1"
    if isinstance(value, str):
        try:
            target = FallbackTarget.of(value)
        except ValueError as error:
            raise WrongValue(f"{shown(value)} {error}", hint) from None
        return target.url
    raise WrongValue(f"{shown(value)} is not an address", hint)


def secret(value: Any) -> str:
    """Return the name of a secret."""
    if isinstance(value, str) and field_readers.is_secret_name(value):
        return value
    raise WrongValue(
        f"{shown(value)} is not a valid name of a secret",
        "run: corral secret set API_KEY, then write: secret: API_KEY",
    )
