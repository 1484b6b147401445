"""Readers of the values in a spec, one for each kind of value. A reader converts the
text of the user, or raises WrongValue with a hint about the right form. No I/O. The
models of the spec use these readers."""

import json
import math
import re
from collections.abc import Callable, Mapping
from difflib import get_close_matches
from typing import Any, Final

from corral.domain.field_correction import FieldCorrection, FieldValue, corrected
from corral.domain.ids import NAME_RULE, is_name
from corral.domain.image import image_of
from corral.domain.job import PRIORITIES
from corral.domain.queue_faults import MOST_AMOUNT
from corral.domain.units import MILLIS_PER_CPU, MILLIS_PER_GPU, bytes_of, seconds_of

MAX_GPUS: Final = 1024  # a node
MAX_NODES: Final = 100_000
# characters: the kernel takes 131,072 bytes in one argument
MAX_COMMAND: Final = 100_000
# bytes of all variables: the kernel takes 2 MiB with a command
MAX_ENVIRONMENT: Final = 1024 * 1024
MAX_SECONDS: Final = 3650 * 86400.0
# the secret that is the job's own token (decision 0072)
OWN_TOKEN: Final = "CORRAL_TOKEN"
SET_BY_CORRAL: Final = frozenset(
    (
        "MASTER_ADDR",
        "MASTER_PORT",
        "RANK",
        "LOCAL_RANK",
        "WORLD_SIZE",
        "LOCAL_WORLD_SIZE",
        "NODE_RANK",
    )
)

_VARIABLE: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,254}", re.ASCII)
_DIGEST: Final = re.compile(r"[0-9a-f]{64}", re.ASCII)
_AT_LEAST: Final = re.compile(r"(.+?)\s*(?:\+|\.\.(?:[^.]*))", re.ASCII)
_GPU: Final = re.compile(r"([A-Za-z][A-Za-z0-9._-]{0,62})(?:\s*:\s*([^:]+))?", re.ASCII)


class WrongValue(ValueError):
    """The error for an invalid value.

    Args:
        hint: A sentence about the right form, for a spec.
        correction: Valid values, if the field is known.
    """

    def __init__(
        self, text: str, hint: str = "", *, correction: FieldCorrection | None = None
    ) -> None:
        super().__init__(text)
        self.text = text
        self.hint = hint
        self.correction = correction


def shown(value: object) -> str:
    """Return a value for a message: one line, printable, at most 60 characters."""
    if isinstance(value, float):
        return f"{value:g}"
    try:
        text = json.dumps(value, default=str, ensure_ascii=False)
    except (ValueError, RecursionError):
        text = type(value).__name__
    text = "".join(
        character if character.isprintable() else ascii(character)[1:-1]
        for character in text
    )
    return text if len(text) <= 60 else f"{text[:57]}..."


def text(value: Any, *, noun: str, example: str, most: int = 4096) -> str:
    """Return non-empty text without NUL, of at most `most` characters."""
    if not isinstance(value, str):
        raise WrongValue(f"{shown(value)} is not a valid {noun}", f"write: {example}")
    if not value.strip():
        raise WrongValue(f"the {noun} is empty", f"write: {example}")
    if len(value) > most:
        raise WrongValue(
            f"the {noun} has {len(value):,} characters; at most {most:,} are allowed",
            "put the text into a file in the workdir",
        )
    if "\0" in value or any("\ud800" <= letter <= "\udfff" for letter in value):
        raise WrongValue(
            f"the {noun} contains a NUL or surrogate character", f"write: {example}"
        )
    return value


def image(value: Any) -> str:
    """Return the name of the image. Raises: WrongValue, WrongImage."""
    written = text(value, noun="image", example="image: ubuntu:24.04")
    image_of(written)
    return written


def choice(value: Any, *, field: str, among: tuple[str, ...]) -> str:
    """Return the value if it is one of the words in `among`."""
    if isinstance(value, str) and value in among:
        return value
    near = get_close_matches(shown(value).lower(), among, n=1) or among
    raise WrongValue(
        f"{shown(value)} is not one of: {', '.join(among)}",
        f"write: {field}: {near[0]}",
    )


def name(value: Any, *, field: str, noun: str) -> str:
    """Return the value if it is a valid name. The same rule applies to all names."""
    if isinstance(value, str) and is_name(value):
        return value
    raise WrongValue(
        f"{shown(value)} is not a valid {noun}: use {NAME_RULE}",
        f"write: {field}: {_suggest_name(value)}",
    )


def _suggest_name(value: object) -> str:
    """Return a valid name that is close to the given value."""
    safe_text = value if isinstance(value, str) else shown(value)
    suggested_name = re.sub(
        r"[^A-Za-z0-9._-]+", "-", safe_text[:63], flags=re.ASCII
    ).strip("._-")
    if not isinstance(value, str):
        return f'"{suggested_name}"' if is_name(suggested_name) else "train"
    return suggested_name if is_name(suggested_name) else "train"


def _is_finite(value: int | float) -> bool:
    """Return whether the number is finite, whatever its size."""
    return isinstance(value, int) or math.isfinite(value)


def whole(value: Any, *, field: str, low: int, high: int, noun: str) -> int:
    """Return the value if it is a whole number within bounds."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise WrongValue(
            f"{shown(value)} is not a whole number",
            f"write: {field}: {_number_in(value, low)}",
        )
    if not _is_finite(value) or value != int(value):
        near = max(low, min(high, round(value))) if _is_finite(value) else low
        raise WrongValue(
            f"{shown(value)} is not a whole number", f"write: {field}: {near}"
        )
    if not low <= value <= high:
        near = max(low, min(high, int(value)))
        raise WrongValue(
            f"{shown(value)} is out of bounds: {noun} can be {low:,} to {high:,}",
            f"write: {field}: {near}",
        )
    return int(value)


def _number_in(value: object, otherwise: int) -> str:
    """The number that a person most likely meant by a text."""
    match = re.search(r"\d{1,9}", value) if isinstance(value, str) else None
    return match.group() if match else str(otherwise)


def gpus(value: Any) -> tuple[str | None, int]:
    """Parse GPUs: 8, 0.5, "h100:8", "h100" and {h100: 8}. Return (type or None for any,
    thousandths of a GPU).

    Types are in lower case. Quoted numbers are refused, because "8" could also be meant
    as a type.
    """
    if isinstance(value, Mapping):
        return _gpu_mapping(value)
    if isinstance(value, str):
        match = _GPU.fullmatch(value.strip())
        if match is None or _as_number(value) is not None:
            meant_text = "8" if value[:1].isalpha() else _number_in(value, 1)
            raise WrongValue(
                f"{shown(value)} is text, but not in the form TYPE or TYPE:N",
                f'write: gpu: {meant_text} for any type, or gpu: "h100:{meant_text}"',
            )
        kind, count = match.groups()
        amount = 1.0 if count is None else _as_number(count)
        if amount is None:
            raise WrongValue(
                f"{shown(value)}: {shown(count)} is not a valid GPU count",
                f'write: gpu: "{kind}:8"',
            )
        return kind.lower(), _gpu_millis(amount, value)
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise WrongValue(
            f"{shown(value)} is not a valid GPU count", 'write: gpu: 8 or "h100:8"'
        )
    return None, _gpu_millis(value, value)


def is_gpu_type(text: str) -> bool:
    """Whether GPUs can be of this type."""
    match = _GPU.fullmatch(text)
    return match is not None and match.group(2) is None


def _gpu_mapping(value: Mapping[Any, Any]) -> tuple[str | None, int]:
    """Parse GPUs as in SkyPilot, {H100: 8}, or dstack, {name: H100, count: 8}."""
    if set(value) <= {"name", "count"} and "name" in value:
        value = {value["name"]: value.get("count", 1)}
    if len(value) != 1:
        raise WrongValue(
            f"{shown(value)} names {len(value)} GPU types, but must name one",
            'name one type here, others under any_of: [{resources: {gpu: "a100:8"}}]',
        )
    kind, count = next(iter(value.items()))
    if not isinstance(kind, str) or not is_gpu_type(kind):
        raise WrongValue(f"{shown(kind)} is not a GPU type", 'write: gpu: "h100:8"')
    if isinstance(count, bool) or not isinstance(count, int | float):
        raise WrongValue(
            f"{shown(count)} is not a valid GPU count", f'write: gpu: "{kind}:8"'
        )
    return kind.lower(), _gpu_millis(count, count)


def _as_number(value: str) -> float | None:
    try:
        return float(value)
    except ValueError:
        return None


def _gpu_millis(amount: float, asked: object) -> int:
    if not _is_finite(amount) or amount < 0:
        raise WrongValue(f"{shown(asked)} is not a valid GPU count", "write: gpu: 1")
    if amount > MAX_GPUS:
        raise WrongValue(
            f"{shown(asked)} is too much: a node can have at most {MAX_GPUS:,} GPUs",
            "write the GPUs of one node, and the number of nodes as: nodes: 2",
        )
    millis = round(amount * MILLIS_PER_GPU)
    if amount > 1 and millis % MILLIS_PER_GPU:
        raise WrongValue(
            f"{shown(asked)} is not valid: above 1, the number of GPUs must be whole",
            f"write: gpu: {math.ceil(amount)}",
        )
    if amount and not millis:
        raise WrongValue(
            f"{shown(asked)} is below the minimum of 0.001 GPU", "write: gpu: 0.5"
        )
    return millis


def _strip_upper_bound(value: str) -> str:
    """Return "4" for SkyPilot's "4+" and dstack's "4..8"; other text unchanged."""
    match = _AT_LEAST.fullmatch(value.strip())
    return match.group(1) if match else value


def cpu_millis(value: Any) -> int:
    """Return the thousandths of a core for 32, 0.5, "4+" and "4..8"."""
    amount: object = value
    if isinstance(value, str) and _strip_upper_bound(value) != value:
        amount = _as_number(_strip_upper_bound(value))
    if isinstance(amount, bool) or not isinstance(amount, int | float):
        raise WrongValue(
            f"{shown(value)} is not a valid number of cores",
            f"write: cpu: {_number_in(value, 4)}",
        )
    if not _is_finite(amount) or not 0 <= amount <= 65_536:
        raise WrongValue(
            f"{shown(value)} is out of bounds: 0 to 65,536 cores", "write: cpu: 4"
        )
    return round(amount * MILLIS_PER_CPU)


def memory_bytes(value: Any) -> int:
    """Return the bytes for "256GB", "64GiB", "32+" (GB) and "16GB..64GB"."""
    if not isinstance(value, str):
        raise WrongValue(
            f"{shown(value)} is not a size with a unit",
            f"write the unit: memory: {_number_in(shown(value), 32)}GB",
        )
    lower_bound = _strip_upper_bound(value)
    if lower_bound != value and _as_number(lower_bound) is not None:
        lower_bound += "GB"
    if lower_bound == value and _as_number(value) is not None:
        raise WrongValue(
            f"{shown(value)} has no unit",
            f"write the unit: memory: {_number_in(value, 32)}GB",
        )
    try:
        size = bytes_of(lower_bound)
    except (ValueError, OverflowError):
        raise WrongValue(
            f"{shown(value)} is not a valid size", "write: memory: 256GB, or 64GiB"
        ) from None
    if not 0 < size <= 10**15:
        raise WrongValue(
            f"{shown(value)} is out of bounds: 1 B to 1,000 TB", "write: memory: 256GB"
        )
    return size


def seconds(
    value: Any, *, field: str, low: float = 0.0, high: float = MAX_SECONDS
) -> float:
    """Return the seconds for "90s", "1h30m" or Slurm's "2-12:00:00", within bounds."""
    hint = f"write: {field}: 4h, or 90s, 30m, 1d12h"
    correction = corrected(field, "4h", "90s", "1d12h")
    if isinstance(value, str) and re.fullmatch(r"\s*[1-9]\d{0,8}\s*", value, re.ASCII):
        value = int(value)  # Slurm would take it for minutes: who means them says so
    if not isinstance(value, str):
        if isinstance(value, int) and not isinstance(value, bool) and value > 0:
            raise _without_unit(shown(value), field)
        text = f"{shown(value)} is not a valid duration"
        raise WrongValue(text, hint, correction=correction)
    try:
        amount = seconds_of(value)
    except (ValueError, OverflowError):
        text = f"{shown(value)} is not a valid duration"
        raise WrongValue(text, hint, correction=correction) from None
    if not low <= amount <= high:
        text = f"{shown(value)} is out of bounds: {low:g} to {high:.0f} seconds"
        raise WrongValue(text, hint, correction=correction)
    return amount


def _without_unit(number: str, field: str) -> WrongValue:
    slurm = " (minutes, as in Slurm)" if field == "max_duration" else ""
    return WrongValue(
        f"{number} has no unit",
        f"write the unit: {field}: {number}m{slurm}, {number}h or {number}s",
        correction=corrected(field, f"{number}m", f"{number}h", f"{number}s"),
    )


def amount(
    value: Any, *, field: str, from_zero: bool = False, example: FieldValue = 4
) -> float:
    """Return the value if it is a finite number above 0, or with `from_zero` from 0 on."""
    correction = corrected(field, example)
    if isinstance(value, bool) or not isinstance(value, int | float):
        text = f"{shown(value)} is not a number"
        raise WrongValue(text, f"write: {field}: {example}", correction=correction)
    if not (0 < value <= MOST_AMOUNT or (from_zero and value == 0)):
        lower_text = "0 to" if from_zero else "above 0, at most"
        text = f"{shown(value)} is out of bounds: {lower_text} {MOST_AMOUNT:,}"
        raise WrongValue(text, f"write: {field}: {example}", correction=correction)
    return float(value)


def priority(value: Any) -> int:
    """Return the priority as a number; low, normal and high stand for numbers."""
    if isinstance(value, str) and value in PRIORITIES:
        return PRIORITIES[value]
    if isinstance(value, str):
        raise WrongValue(
            f"{shown(value)} is not a valid priority",
            "write: priority: low, normal, high or a number",
        )
    return whole(value, field="priority", low=-10_000, high=10_000, noun="priority")


def command(value: Any, *, field: str, example: str = "python train.py") -> str:
    """Return the shell command. The value is a command, or a list of commands, each of
    which runs only if the one before it succeeded. `example`: a command for hints."""
    example = (
        f"{field}: {'pip install -r requirements.txt' if field == 'setup' else example}"
    )
    if isinstance(value, list):
        if not value:
            raise WrongValue("the list of commands is empty", f"write: {example}")
        lines = [
            text(argument, noun="command", example=example, most=MAX_COMMAND)
            for argument in value
        ]
        value = lines[0] if len(lines) == 1 else "set -e\n" + "\n".join(lines)
    return text(value, noun="command", example=example, most=MAX_COMMAND)


def environment(value: Any) -> tuple[tuple[str, str], ...]:
    """Return the environment variables and their values, sorted by name."""
    if not isinstance(value, Mapping):
        raise WrongValue(
            f"{shown(value)} is not a mapping", "write: env: {NAME: value}"
        )
    variables = tuple(
        sorted(
            (_validate_env_name(key), _env_value(key, env_value))
            for key, env_value in value.items()
        )
    )
    # each as KEY=VALUE and a NUL
    size = sum(len(key) + len(env_text.encode()) + 2 for key, env_text in variables)
    if size > MAX_ENVIRONMENT:
        raise WrongValue(
            f"the {len(variables):,} variables have {size:,} bytes together; "
            f"at most {MAX_ENVIRONMENT:,} are allowed",
            "put large values into a file in the workdir",
        )
    return variables


def _validate_env_name(key: object) -> str:
    if not isinstance(key, str) or _VARIABLE.fullmatch(key) is None:
        raise WrongValue(
            f"{shown(key)} is not a valid variable name",
            "write letters, digits and _, no digit first: env: {NAME: value}",
        )
    if key in SET_BY_CORRAL or key.startswith("CORRAL_"):
        raise WrongValue(
            f"{key} is set by Corral for each rank", f"remove {key} from env"
        )
    return key


def _env_value(key: str, value: object) -> str:
    huge = isinstance(value, int) and abs(value) >= 10**30
    endless = isinstance(value, float) and not _is_finite(
        value
    )  # JSON has no such number
    if (
        isinstance(value, bool)
        or huge
        or endless
        or not isinstance(value, str | int | float)
    ):
        raise WrongValue(
            f"{key} is {shown(value)}, but must be text or a finite number",
            f'write: {key}: "..."',
        )
    value_text = value if isinstance(value, str) else repr(value)
    if "\0" in value_text or any(
        "\ud800" <= letter <= "\udfff" for letter in value_text
    ):
        raise WrongValue(
            f"{key} contains a NUL or surrogate character", "remove the character"
        )
    if len(value_text) > MAX_COMMAND:
        raise WrongValue(
            f"the value of {key} is longer than {MAX_COMMAND:,} characters",
            "put the value into a file in the workdir",
        )
    return value_text


def is_secret_name(value: str) -> bool:
    """Return whether the text is both a name and the name of a variable."""
    return is_name(value) and _VARIABLE.fullmatch(value) is not None


def secrets(value: Any) -> tuple[str, ...]:
    """Return the names of secrets. Their values stay in the head."""
    if isinstance(value, Mapping):
        first_name = next(iter(value), "HF_TOKEN")
        raise WrongValue(
            "secrets must be a list of names without values",
            f"run: corral secret set {_suggest_name(first_name)}, then write: secrets: "
            f"[{_suggest_name(first_name)}]",
        )
    if not isinstance(value, list):
        raise WrongValue(
            f"{shown(value)} is not a list of names", "write: secrets: [HF_TOKEN]"
        )
    for secret_name in value:
        if not isinstance(secret_name, str) or not is_secret_name(secret_name):
            raise WrongValue(
                f"{shown(secret_name)} is not a valid secret name",
                "write letters, digits and _, for example: secrets: [HF_TOKEN]",
            )
        if secret_name in SET_BY_CORRAL:
            raise WrongValue(f"{secret_name} is set by Corral", "use another name")
    return tuple(dict.fromkeys(value))


def is_digest(value: str) -> bool:
    """Whether this is the digest of a snapshot, and no path."""
    return _DIGEST.fullmatch(value) is not None


def reader(read: Callable[..., Any], **how: Any) -> Callable[[Any], Any]:
    """Return the reader function with its other arguments filled in."""
    return lambda value: read(value, **how)
