"""Messages in which vLLM and SGLang publish the events of their KV caches: MessagePack,
each event as a map with its fields' names, or as an array of their values."""

from collections.abc import Sequence
from typing import Any, Final

import msgspec

from corral.route.kv_events import (
    BlockHash,
    BlocksCleared,
    BlocksRemoved,
    BlocksStored,
    KvBatch,
    KvEvent,
)

# fields in the order of arrays; engines add new ones at the end
_NAMES: Final = {
    "BlockStored": (
        "block_hashes",
        "parent_block_hash",
        "token_ids",
        "block_size",
        "lora_id",
        "medium",
        "lora_name",
        "extra_keys",
        "group_idx",
        "kv_cache_spec_kind",
        "kv_cache_spec_sliding_window",
    ),
    "BlockRemoved": ("block_hashes", "medium", "group_idx"),
    "AllBlocksCleared": (),
}
# kinds of layers of which a block of an early part of a prompt is not needed
_WINDOWED: Final = ("sliding", "local", "mamba")


class KvEventsInvalid(ValueError):
    """A message that is not one of a KV cache's events."""


class _Stored(msgspec.Struct):
    block_hashes: list[BlockHash]
    token_ids: list[int]
    block_size: int
    parent_block_hash: BlockHash | None = None
    lora_id: int | None = None
    lora_name: str | None = None
    extra_keys: list[Any] | None = None
    group_idx: int | None = None
    kv_cache_spec_kind: str | None = None
    kv_cache_spec_sliding_window: int | None = None


class _Removed(msgspec.Struct):
    block_hashes: list[BlockHash]
    group_idx: int | None = None


_Raw = tuple[float, list[Any]]


def decode_batch(number: int, message: bytes) -> KvBatch:
    """Return the events of a message. Raises: KvEventsInvalid.

    Args:
        number: Sequence number of the message.
    """
    try:
        batch = msgspec.msgpack.decode(message, type=list[Any])
        at, raw_events = msgspec.convert(batch[:2], type=_Raw)
        events = [event for raw in raw_events for event in _events_of(raw)]
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise KvEventsInvalid(str(error)) from None
    return KvBatch(number, at, events)


def _events_of(raw: object) -> Sequence[KvEvent]:
    """Return the event, or nothing for one of a kind that is not known."""
    if isinstance(raw, dict):
        kind = raw.get("type")
        fields = raw
    elif isinstance(raw, list) and raw:
        kind = raw[0]
        names = _NAMES.get(kind, ()) if isinstance(kind, str) else ()
        fields = dict(zip(names, raw[1:], strict=False))
    else:
        raise KvEventsInvalid("an event is a map or an array with its kind")
    if kind == "BlockStored":
        return (_stored(msgspec.convert(fields, type=_Stored)),)
    if kind == "BlockRemoved":
        removed = msgspec.convert(fields, type=_Removed)
        return (BlocksRemoved(removed.block_hashes, removed.group_idx or 0),)
    return (BlocksCleared(),) if kind == "AllBlocksCleared" else ()


def _stored(fields: _Stored) -> BlocksStored:
    kind = fields.kv_cache_spec_kind or ""
    is_windowed = fields.kv_cache_spec_sliding_window is not None or any(
        word in kind for word in _WINDOWED
    )
    return BlocksStored(
        hashes=fields.block_hashes,
        parent=fields.parent_block_hash,
        tokens=fields.token_ids,
        block_size=fields.block_size,
        keys=_keys(fields),
        group=fields.group_idx or 0,
        is_windowed=is_windowed,
    )


def _keys(fields: _Stored) -> Sequence[str | None]:
    """Return what else decides about each block: the adapter, images, a salt."""
    if fields.extra_keys is not None:
        return [None if not key else repr(key) for key in fields.extra_keys]
    adapter = fields.lora_name or fields.lora_id
    return [] if not adapter else [str(adapter)] * len(fields.block_hashes)
