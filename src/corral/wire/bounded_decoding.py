"""Decoding of an agent's messages with bounds on all sizes and numbers. A valid message
is decoded in one pass in C. For any other message, a second pass drops only the parts
that exceed the bounds.

For each message type, this module derives a type with the same fields and with bounds
on them, and decodes messages by the bounded type first. New fields get bounds
automatically.
"""

from collections.abc import Callable, Iterable
from dataclasses import MISSING, dataclass, fields, is_dataclass
from enum import Enum
from functools import cache
from types import NoneType, UnionType
from typing import (
    Annotated,
    Any,
    Final,
    NamedTuple,
    Union,
    get_args,
    get_origin,
    get_type_hints,
)

import msgspec

from corral.domain.attempt import Exit, Save
from corral.domain.bounds import (
    MOST_GPUS,
    MOST_INTEGER,
    MOST_ITEMS,
    MOST_LOSS,
    MOST_MOMENT,
    MOST_NUMBER,
    MOST_RANKS,
    MOST_SAVES,
    MOST_SIGNALS,
    NAME_LETTERS,
    PLAIN,
    SENTENCE,
    TAIL_LETTERS,
    OutOfBounds,
    cut,
    distinct,
    printed,
)
from corral.domain.content import ContentReport
from corral.domain.desired_state import Version
from corral.domain.node_signal import Signal
from corral.domain.observed_state import AttemptKey, Phase, Progress, Seen
from corral.domain.resources import Inventory
from corral.domain.telemetry import NodeSample
from corral.wire.agent_messages import Heartbeat, Hello, LogChunk, from_agent
from corral.wire.message_bounds import (
    ITEMS,
    LETTERS,
    MOMENTS,
    NON_NEGATIVE,
    PATTERNS,
)

WRONG: Final = (ValueError, TypeError, RecursionError, OverflowError)
WHY_LETTERS: Final = 200

_Int: Final = Annotated[int, msgspec.Meta(ge=-MOST_INTEGER, le=MOST_INTEGER)]
_Count: Final = Annotated[int, msgspec.Meta(ge=0, le=MOST_INTEGER)]
_Number: Final = Annotated[float, msgspec.Meta(ge=-MOST_NUMBER, le=MOST_NUMBER)]
_Moment: Final = Annotated[float, msgspec.Meta(ge=-MOST_MOMENT, le=MOST_MOMENT)]
_ANY_TEXT: Final = Annotated[str, msgspec.Meta(max_length=2**23)]
_TAIL: Final = tuple[
    Annotated[int, msgspec.Meta(ge=0, le=MOST_RANKS)],
    Annotated[str, msgspec.Meta(max_length=2**20)],
]
_Loss: Final = Annotated[float, msgspec.Meta(ge=-MOST_LOSS, le=MOST_LOSS)]


class Dropped(NamedTuple):
    """A part of a message that was dropped: what it was, its attempt and why. For
    example: ("save", ("j3", 1), "step must be ...")."""

    what: str
    key: AttemptKey | None
    why: str


@dataclass(frozen=True, slots=True)
class BoundedMessage:
    """A message within bounds, and the parts of it that were dropped."""

    message: Hello | Heartbeat | LogChunk
    dropped: tuple[Dropped, ...] = ()


def read_frame(frame: bytes) -> BoundedMessage:
    """Read one frame of an agent.

    Raises: ValueError, TypeError, RecursionError, OverflowError for a frame that is no
    message at all, and for a hello or a log chunk out of bounds.
    """
    try:
        within = _shape_of_frame(frame)
    except WRONG:
        return _second_look(frame)
    message: Hello | Heartbeat | LogChunk = from_agent(frame)
    if isinstance(message, Hello):
        _check_inventory(message.inventory)
    elif isinstance(message, Heartbeat) and not _is_consistent(within):
        return _second_look(frame)
    return BoundedMessage(message)


def _is_consistent(within: Any) -> bool:
    """Return whether the sample and the inventory of a heartbeat are consistent, beyond
    the bounds of single fields. For example: no two GPUs, ports or disks have the same
    name."""
    try:
        if within.sample:
            _check_sample(within.sample)
        if within.inventory:
            _check_inventory(within.inventory)
    except OutOfBounds:
        return False
    return True


def _check_sample(sample: Any) -> None:
    distinct("GPUs of the sample", [gpu.index for gpu in sample.gpus or ()])
    distinct("ports of the sample", [port.name for port in sample.ports or ()])
    distinct("disks of the sample", [disk.path for disk in sample.disks or ()])


def _check_inventory(inventory: Any) -> None:
    distinct("labels of the inventory", [name for name, _ in inventory.labels or ()])


# -- the second look -----------------------------------------------------------------------------


_NIL: Final = msgspec.Raw(msgspec.msgpack.encode(None))


class _LooseHeartbeat(msgspec.Struct, tag="heartbeat"):
    """A heartbeat whose parts are not decoded yet. They are decoded one by one."""

    number: int
    version: msgspec.Raw
    seen: Annotated[
        list[msgspec.Raw], msgspec.Meta(max_length=ITEMS["Heartbeat.seen"])
    ] = []
    inventory: msgspec.Raw = _NIL
    sample: msgspec.Raw = _NIL
    content: msgspec.Raw = _NIL
    signals: Annotated[
        list[msgspec.Raw], msgspec.Meta(max_length=16 * MOST_SIGNALS)
    ] = []


class _BareSeen(msgspec.Struct):
    """The key and phase of an attempt in a heartbeat. Even if all other fields are
    dropped, the head still knows that the attempt exists."""

    key: AttemptKey
    phase: Phase


_loose_heartbeat: Final = msgspec.msgpack.Decoder(_LooseHeartbeat).decode
_loose_seen: Final = msgspec.msgpack.Decoder(dict[str, msgspec.Raw]).decode
_list_of_raw: Final = msgspec.msgpack.Decoder(
    Annotated[list[msgspec.Raw], msgspec.Meta(max_length=16 * MOST_RANKS)]
).decode
_SEEN: Final = get_type_hints(Seen)
_bare_seen: Final = msgspec.msgpack.Decoder(_BareSeen).decode


@dataclass(slots=True)
class _Sieve:
    """Decoder for the parts of one message. It records the parts that it drops."""

    dropped: list[Dropped]

    def take(
        self,
        shape: Any,
        raw: Any,
        what: str,
        key: AttemptKey | None = None,
        of: str = "",
    ) -> Any:
        """Decode one part as the type `shape`. Return None if the part is absent or out
        of bounds."""
        if raw == _NIL:
            return None
        try:
            within = _bounded_decoder(shape, of)(raw)
            if shape is NodeSample:
                _check_sample(within)
            elif shape is Inventory:
                _check_inventory(within)
            return _decoder_for_type(shape)(raw)
        except WRONG as error:
            self.drop(what, key, str(error))
            return None

    def drop(self, what: str, key: AttemptKey | None, why: str) -> None:
        self.dropped.append(Dropped(what, key, cut(why, WHY_LETTERS)))

    def several(
        self,
        shape: Any,
        raws: Iterable[Any],
        what: str,
        most: int,
        key: AttemptKey | None = None,
    ) -> tuple[Any, ...]:
        """Decode the first `most` items of a list. Return those that are within bounds."""
        kept_items: list[Any] = []
        for item_index, raw in enumerate(raws):
            if item_index >= most:
                self.drop(what, key, f"more than {most:,} in one message")
                break
            if (decoded_item := self.take(shape, raw, what, key)) is not None:
                kept_items.append(decoded_item)
        return tuple(kept_items)


def _second_look(frame: bytes) -> BoundedMessage:
    """Decode a heartbeat part by part, and drop the invalid parts. Raises: as
    `read_frame`."""
    loose = _loose_heartbeat(frame)
    sieve = _Sieve([])
    decoded_attempts = [
        attempt_seen
        for raw in loose.seen
        if (attempt_seen := _decode_attempt(sieve, raw)) is not None
    ]
    beat = Heartbeat(
        number=_bounded_decoder(int)(msgspec.msgpack.encode(loose.number)),
        version=sieve.take(Version | None, loose.version, "version"),
        seen=tuple(decoded_attempts),
        inventory=sieve.take(Inventory, loose.inventory, "inventory"),
        sample=sieve.take(NodeSample, loose.sample, "sample"),
        content=sieve.take(ContentReport, loose.content, "content"),
        signals=sieve.several(Signal, loose.signals, "signal", MOST_SIGNALS),
    )
    return BoundedMessage(beat, tuple(sieve.dropped))


def _decode_attempt(sieve: _Sieve, raw: msgspec.Raw) -> Seen | None:
    """Decode an attempt of a heartbeat, without the parts that are out of bounds; None
    if even its key is invalid."""
    try:
        _bounded_decoder(Seen)(raw)
        return _decoder_for_type(Seen)(raw)  # type: ignore[no-any-return]
    except WRONG as error:
        error_text = str(error)
    try:
        bare = _bare_seen(raw)
        _bounded_decoder(AttemptKey)(msgspec.msgpack.encode(bare.key))
    except WRONG:
        sieve.drop("attempt", None, error_text)
        return None
    loose, checked_fields = _loose_seen(raw), {}
    for name, hint in _SEEN.items():
        if name in loose:
            field_value = _part_of_seen(sieve, name, hint, loose[name], bare.key)
            if field_value is not None:
                checked_fields[name] = field_value
    return Seen(**{**checked_fields, "key": bare.key, "phase": bare.phase})


def _part_of_seen(
    sieve: _Sieve, name: str, hint: Any, raw: msgspec.Raw, key: AttemptKey
) -> Any:
    """Decode the field `name` of an attempt; None if it is out of bounds. Lists lose
    only the items that are out of bounds."""
    if name in ("exits", "saves", "tails"):
        try:
            raws = _list_of_raw(raw)
        except WRONG as error:
            sieve.drop(name, key, str(error))
            return None
        if name == "tails":
            return _decode_log_tails(sieve, raws, key)
        item, item_kind = (
            (Save, "save") if name == "saves" else (tuple[int, Exit], "exit")
        )
        return sieve.several(
            item, raws, item_kind, MOST_SAVES if name == "saves" else MOST_RANKS, key
        )
    if name == "progress":
        return _decode_progress(sieve, raw, key)
    if hint is str and PATTERNS.get(f"Seen.{name}") == SENTENCE:
        return _decode_shortened(
            sieve, raw, LETTERS.get(f"Seen.{name}", NAME_LETTERS), key
        )
    return sieve.take(hint, raw, name.replace("_", " "), key, of=f"Seen.{name}")


def _decode_progress(sieve: _Sieve, raw: Any, key: AttemptKey) -> Progress | None:
    """Decode a progress report.

    A loss that is not a number, for example after a run has diverged, counts as
    missing.
    """
    own_sieve = _Sieve([])
    progress: Progress | None = own_sieve.take(Progress, raw, "progress", key)
    if progress is None and own_sieve.dropped:
        try:
            decoded = msgspec.msgpack.decode(bytes(raw))
            lossless = msgspec.msgpack.encode({**decoded, "loss": None, "scalars": []})
        except WRONG:
            lossless = bytes(raw)
        progress = sieve.take(Progress, msgspec.Raw(lossless), "progress", key)
    return progress


def _decode_log_tails(
    sieve: _Sieve, raws: Iterable[msgspec.Raw], key: AttemptKey
) -> tuple[tuple[int, str], ...]:
    """Decode the last lines of the ranks' logs. Their text comes from the program, so
    characters that cannot be stored are replaced."""
    tails = sieve.several(_TAIL, raws, "tail of a log", MOST_RANKS, key)
    return tuple((rank, printed(text[-TAIL_LETTERS:])) for rank, text in tails)


def _decode_shortened(
    sieve: _Sieve, raw: msgspec.Raw, letters: int, key: AttemptKey
) -> str | None:
    """Decode a text for people, shortened to `letters` characters; None if it is no
    text."""
    text: str | None = sieve.take(_ANY_TEXT, raw, "sentence", key)
    if text is None:
        return None
    short_text = cut(text, letters)
    if short_text != text:
        sieve.drop(
            "sentence",
            key,
            f"the text has {len(text):,} characters; the first {letters:,} are kept",
        )
    return short_text


# -- shapes with bounds --------------------------------------------------------------------------


@cache
def _decoder_for_type(shape: Any) -> Callable[[Any], Any]:
    return msgspec.msgpack.Decoder(shape).decode


@cache
def _bounded_decoder(shape: Any, of: str = "") -> Callable[[Any], Any]:
    return msgspec.msgpack.Decoder(bounded(shape, of)).decode


def bounded(hint: Any, of: str = "") -> Any:
    """Return the same type with bounds added. `of`: the field that has this type, for
    example "Save.path"."""
    name = of.rpartition(".")[2]
    if get_origin(hint) is Annotated:
        return hint  # it says its own
    if hint is int and of.endswith("Sample.index"):
        return Annotated[int, msgspec.Meta(ge=0, lt=MOST_GPUS)]
    if hint is int:
        return _Count if name in NON_NEGATIVE else _Int
    if hint is float and of.startswith("Scalar."):
        return _Loss
    if hint is float:
        return _Loss if name == "loss" else _Moment if name in MOMENTS else _Number
    if hint is str:
        letters = LETTERS.get(of, NAME_LETTERS)  # msgpack's text is valid UTF-8 already
        return Annotated[
            str, msgspec.Meta(max_length=letters, pattern=PATTERNS.get(of, PLAIN))
        ]
    if (plain := getattr(hint, "__supertype__", None)) is not None:
        return bounded(plain, of)
    if isinstance(hint, type) and (
        is_dataclass(hint) or issubclass(hint, msgspec.Struct)
    ):
        return _bounded_struct(hint)
    if isinstance(hint, type) and issubclass(hint, tuple) and hasattr(hint, "_fields"):
        hints = get_type_hints(hint)
        members = (bounded(hints[name], f"{hint.__name__}.{name}") for name in hints)
        return tuple[tuple(members)]  # type: ignore[misc]
    return _bounded_container(hint, of)


def _bounded_container(hint: Any, of: str) -> Any:
    """Return the bounded type for tuples, unions, and types without bounds of their
    own."""
    origin, args = get_origin(hint), get_args(hint)
    if origin is tuple and len(args) == 2 and args[1] is Ellipsis:
        meta = msgspec.Meta(max_length=ITEMS.get(of, MOST_ITEMS))
        return Annotated[list[bounded(args[0], of)], meta]  # type: ignore[misc]
    if origin is tuple:
        return tuple[tuple(bounded(arg, of) for arg in args)]  # type: ignore[misc]
    if origin in (Union, UnionType):
        return Union[tuple(bounded(arg, of) for arg in args)]  # noqa: UP007
    plain = hint in (bool, bytes, NoneType) or (
        isinstance(hint, type) and issubclass(hint, Enum)
    )
    if plain:
        return hint
    raise TypeError(f"{of}: no bounds are known for {hint}")


@cache
def _bounded_struct(shape: Any) -> type[msgspec.Struct]:
    """Return a struct type with the same fields and with bounds. A field with a default
    may be absent."""
    hints = get_type_hints(shape)
    struct_fields: list[Any] = []
    for name, is_required in _list_struct_fields(shape):
        hint = bounded(hints[name], f"{shape.__name__}.{name}")
        struct_fields.append((name, hint) if is_required else (name, hint, None))
    tag = getattr(getattr(shape, "__struct_config__", None), "tag", None)
    return msgspec.defstruct(
        f"Bounded{shape.__name__}", struct_fields, tag=tag, kw_only=True, gc=False
    )


def _list_struct_fields(shape: Any) -> list[tuple[str, bool]]:
    """Return the fields of a struct type, each as (name, whether it is required)."""
    if is_dataclass(shape):
        return [
            (field.name, field.default is MISSING and field.default_factory is MISSING)
            for field in fields(shape)
        ]
    return [(field.name, field.required) for field in msgspec.structs.fields(shape)]


_shape_of_frame: Final = msgspec.msgpack.Decoder(
    bounded(Hello) | bounded(Heartbeat) | bounded(LogChunk)
).decode
