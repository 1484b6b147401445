"""Shapes of the events that a stream's continuation reads: what has another shape is
passed on or given up, but never computed with."""

from typing import Annotated, Any, Final

import msgspec

MOST_TOKEN_ID: Final = 1 << 32

_TokenIds = list[Annotated[int, msgspec.Meta(ge=0, lt=MOST_TOKEN_ID)]] | None
_Count = Annotated[int, msgspec.Meta(ge=0, lt=1 << 53)]


class _Delta(msgspec.Struct, gc=False):
    """Addition to a message."""

    content: str | None = None


class _Choice(msgspec.Struct, gc=False):
    """One of the answers."""

    index: int = 0
    delta: _Delta | None = None
    text: str | None = None
    token_ids: _TokenIds = None
    prompt_token_ids: _TokenIds = None
    finish_reason: str | None = None


class _Chunk(msgspec.Struct, gc=False):
    """Event of OpenAI's streams, as far as it is read."""

    choices: list[_Choice] | None = None
    prompt_token_ids: _TokenIds = None
    usage: dict[str, Any] | None = None


class _LlamaChunk(msgspec.Struct, gc=False):
    """Event of llama.cpp's own endpoint, as far as it is read."""

    content: str | None = None
    tokens: _TokenIds = None
    tokens_predicted: _Count = 0
    tokens_evaluated: _Count = 0
    stop: bool | None = None
    stop_type: str | None = None
    timings: dict[str, Any] | None = None


def is_chunk(value: object) -> bool:
    """Return whether a JSON value is an event of OpenAI's streams."""
    return _has_shape(value, _Chunk)


def is_llama_chunk(value: object) -> bool:
    """Return whether a JSON value is an event of llama.cpp's own endpoint."""
    return _has_shape(value, _LlamaChunk)


def _has_shape(value: object, shape: type[msgspec.Struct]) -> bool:
    try:
        msgspec.convert(value, shape)
    except msgspec.ValidationError:
        return False
    return True
