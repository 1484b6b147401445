"""Bodies of a request whose prompt and answer are computed at two replicas: each way of
sending the KV cache wants other fields."""

import re
import secrets
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

import msgspec

from corral.gateway.continuation.continuation_requests import (
    CHAT_PATH,
    TEXT_PATH,
    read_fields,
    value_of,
)
from corral.gateway.requests.endpoints import RESPONSES_PATH
from corral.wire.gateway_routes import ReplicaEntry

SGLANG_BOOTSTRAP_PORT: Final = 8998
MOST_ROOM: Final = 1 << 63
# paths whose requests each way of sending serves
TRANSFER_PATHS: Final = {
    "vllm": frozenset({CHAT_PATH, TEXT_PATH, RESPONSES_PATH}),
    "sglang": frozenset({CHAT_PATH, TEXT_PATH}),
    "shared": frozenset({CHAT_PATH, TEXT_PATH, RESPONSES_PATH}),
}
# the gateway alone sets these: they name addresses from which a replica reads
_TRANSFER_FIELDS: Final = (
    "kv_transfer_params",
    "bootstrap_host",
    "bootstrap_port",
    "bootstrap_room",
)
# that no answer of one token can have, or that make it longer
_NOT_FOR_PREFILL: Final = (
    "stream_options",
    "min_tokens",
    "return_token_ids",
    "background",
)
# whose answers say something of the prompt's tokens, which only prefill sees
_OF_THE_PROMPT: Final = ("prompt_logprobs", "echo", "prompt_embeds")
_REMOTE_DECODE: Final = {
    "do_remote_decode": True,
    "do_remote_prefill": False,
    "remote_engine_id": None,
    "remote_block_ids": None,
    "remote_host": None,
    "remote_port": None,
}
# in JSON text: within a string, the quotes would be escaped
_CACHED: Final = re.compile(rb'("cached_tokens"\s*:\s*)(\d{1,12})')
_ERROR_EVENT: Final = re.compile(
    rb'(?:\A|\n)data: ?\{\s*"(?:error"|object"\s*:\s*"error")'
)


def without_transfer_fields(body: bytes) -> bytes:
    """Return the body without what a client may not say about transfers. A body that is
    no object is returned as it is."""
    if not any(name.encode() in body for name in _TRANSFER_FIELDS):
        return body
    fields = read_fields(body)
    if fields is None:
        return body
    return msgspec.json.encode(
        {name: raw for name, raw in fields.items() if name not in _TRANSFER_FIELDS}
    )


def can_be_divided(fields: Mapping[str, msgspec.Raw]) -> bool:
    """Return whether the answer is the same if another replica computes the prompt."""
    if any(value_of(fields, name) not in (None, False) for name in _OF_THE_PROMPT):
        return False
    return all(value_of(fields, name) in (None, 1) for name in ("n", "best_of"))


def prefill_body(
    transfer: str, path: bytes, fields: Mapping[str, msgspec.Raw]
) -> bytes:
    """Return the body that computes a prompt for another replica, by vllm or shared."""
    body: dict[str, Any] = {
        name: raw for name, raw in fields.items() if name not in _NOT_FOR_PREFILL
    }
    body["stream"] = False
    if path == RESPONSES_PATH:
        body["max_output_tokens"] = 1
        body["store"] = False
    else:
        body["max_tokens"] = 1
        if "max_completion_tokens" in body:
            body["max_completion_tokens"] = 1
    if transfer == "vllm":
        body["kv_transfer_params"] = _REMOTE_DECODE
    return msgspec.json.encode(body)


def decode_body(body: bytes, answer: bytes) -> bytes | None:
    """Return the body for the replica that decodes, with what the answer of vLLM's
    prefill says about the cache; None if it says nothing."""
    fields = read_fields(body)
    answered = read_fields(answer)
    if fields is None or answered is None:
        return None
    if not isinstance(value_of(answered, "kv_transfer_params"), dict):
        return None
    fields["kv_transfer_params"] = answered["kv_transfer_params"]
    return msgspec.json.encode(fields)


class SglangBodies(NamedTuple):
    """Bodies of one request for the two replicas, which meet in a room."""

    prefill: bytes
    decode: bytes


def sglang_bodies(
    fields: Mapping[str, msgspec.Raw], prefill: ReplicaEntry
) -> SglangBodies:
    """Return the bodies for two replicas of SGLang.

    Args:
        prefill: Replica that computes the prompt, at which the other one meets it.
    """
    body: dict[str, Any] = {
        **fields,
        "bootstrap_host": prefill.host,
        "bootstrap_port": prefill.bootstrap_port or SGLANG_BOOTSTRAP_PORT,
        "bootstrap_room": secrets.randbelow(MOST_ROOM),
    }
    silent = {name: raw for name, raw in body.items() if name != "stream_options"}
    return SglangBodies(
        msgspec.json.encode({**silent, "stream": False}), msgspec.json.encode(body)
    )


def with_cached_tokens(payload: bytes, most: int) -> bytes:
    """Return a part of an answer whose cached tokens are at most these: a replica that
    decodes counts all that it has got from the other one."""
    if b'"cached_tokens"' not in payload:
        return payload
    return _CACHED.sub(
        lambda match: match[1] + b"%d" % min(int(match[2]), most), payload
    )


def begins_with_error(payload: bytes) -> bool:
    """Return whether the first events of a stream have an error."""
    return _ERROR_EVENT.search(payload) is not None
