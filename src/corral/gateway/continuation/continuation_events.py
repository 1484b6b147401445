"""Events that the gateway writes into a stream which it continues."""

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from corral.gateway.continuation.continuation_requests import CHAT_PATH
from corral.gateway.counting.token_counts import TokenCounts

DONE_EVENT: Final = b"data: [DONE]\n\n"

Identity = Mapping[str, Any]  # the fields that all chunks of an answer have in common


def chunk_event(chunk: Mapping[str, Any]) -> bytes:
    """Return the event of one chunk."""
    return b"data: %b\n\n" % msgspec.json.encode(chunk)


def role_event(identity: Identity) -> bytes:
    """Return the event that begins a message."""
    delta = {"role": "assistant", "content": ""}
    return _event(CHAT_PATH, identity, [_choice("delta", delta, None)], {})


def text_event(path: bytes, identity: Identity, text: str, finish: str | None) -> bytes:
    """Return the event with a part of the answer's text, or with its end.

    Args:
        finish: Reason for which the answer has ended; None: it goes on.
    """
    if path == CHAT_PATH:
        choice = _choice("delta", {"content": text} if text else {}, finish)
    else:
        choice = _choice("text", text, finish)
    return _event(path, identity, [choice], {})


def usage_event(path: bytes, identity: Identity, counts: TokenCounts) -> bytes:
    """Return the event with the tokens of the answer."""
    usage = {
        "prompt_tokens": counts.prompt,
        "completion_tokens": counts.output,
        "total_tokens": counts.prompt + counts.output,
        "prompt_tokens_details": {"cached_tokens": counts.cached},
    }
    return _event(path, identity, [], {"usage": usage})


def count_of(counts: Mapping[str, Any], name: str) -> int:
    """Return a count that an engine reports; 0 without one."""
    count = counts.get(name)
    return count if isinstance(count, int) and count >= 0 else 0


def _choice(field: str, value: object, finish: str | None) -> dict[str, object]:
    return {"index": 0, field: value, "logprobs": None, "finish_reason": finish}


def _event(
    path: bytes,
    identity: Identity,
    choices: list[dict[str, object]],
    more: Mapping[str, object],
) -> bytes:
    kind = "chat.completion.chunk" if path == CHAT_PATH else "text_completion"
    return chunk_event({**identity, "object": kind, "choices": choices, **more})
