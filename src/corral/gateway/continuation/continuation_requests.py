"""Requests that continue a stream at another replica, and which streams can be continued.

By text, the other replica gets the text so far as a part of the prompt. By token ids it
gets the tokens that were generated, which are exact for every tokenizer: vLLM returns
them together with the text, and llama.cpp returns them from its own endpoint /completion.
"""

from collections.abc import Mapping, Sequence
from enum import Enum
from typing import Any, Final

import msgspec

from corral.gateway.framing.request_head import RequestHead

CHAT_PATH: Final = b"/v1/chat/completions"
TEXT_PATH: Final = b"/v1/completions"
LLAMA_PATH: Final = b"/completion"
LLAMA_TEMPLATE_PATH: Final = b"/apply-template"
USUAL_TEXT_LIMIT: Final = 16  # of /v1/completions without max_tokens
MOST_BODY_BYTES: Final = 8 * 1024 * 1024

Fields = Mapping[str, msgspec.Raw]


class ContinuationKind(Enum):
    """Ways to continue a stream, as the routes name them."""

    TEXT = "text"
    VLLM = "vllm"
    LLAMA_CPP = "llama.cpp"

    @property
    def is_by_ids(self) -> bool:
        return self is not ContinuationKind.TEXT


# fields whose answers no other replica can continue, unless they are off
_NEVER: Final = (
    "logprobs",
    "top_logprobs",
    "prompt_logprobs",
    "echo",
    "suffix",
    "use_beam_search",
    "guided_json",
    "guided_regex",
    "guided_choice",
    "guided_grammar",
    "structured_outputs",
    "grammar",
    "json_schema",
    "regex",
    "ebnf",
    "n_probs",
    "prompt_embeds",
    "return_token_ids",
    "return_tokens",
    "audio",
)
_NEVER_BY_IDS: Final = ("tools", "functions", "tool_choice", "reasoning_effort")
_OF_CHAT_ALONE: Final = frozenset(
    {
        "messages",
        "tools",
        "tool_choice",
        "functions",
        "function_call",
        "parallel_tool_calls",
        "max_completion_tokens",
        "add_generation_prompt",
        "continue_final_message",
        "chat_template",
        "chat_template_kwargs",
        "response_format",
        "logprobs",
        "top_logprobs",
    }
)
_NOT_OF_LLAMA: Final = _OF_CHAT_ALONE | {"max_tokens", "stream_options", "n", "best_of"}
_LIMITS: Final = ("max_completion_tokens", "max_tokens")


def read_fields(body: bytes) -> dict[str, msgspec.Raw] | None:
    """Return the fields of a body; None if it is not an object."""
    try:
        return msgspec.json.decode(body, type=dict[str, msgspec.Raw])
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None


def value_of(fields: Fields, name: str) -> Any:
    """Return the value of a field; None if it is absent or not valid."""
    raw = fields.get(name)
    if raw is None:
        return None
    try:
        return msgspec.json.decode(raw)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None


def can_be_continued(kind: ContinuationKind, path: bytes, fields: Fields) -> bool:
    """Return whether another replica may continue the stream of this request."""
    if path not in (CHAT_PATH, TEXT_PATH):
        return False
    for name in ("n", "best_of"):
        if value_of(fields, name) not in (None, 1):
            return False
    never = (*_NEVER, *_NEVER_BY_IDS) if kind.is_by_ids else _NEVER
    if any(_is_on(fields, name) for name in never):
        return False
    response_format = value_of(fields, "response_format")
    if response_format not in (None, {"type": "text"}):
        return False
    if kind is ContinuationKind.VLLM and value_of(fields, "stop") not in (None, [], ""):
        return False  # tokens run ahead of the text that vLLM holds back for `stop`
    if path == TEXT_PATH:
        return isinstance(value_of(fields, "prompt"), str)
    messages = value_of(fields, "messages")
    if not isinstance(messages, list) or not messages:
        return False
    return not kind.is_by_ids or all(_is_text(message) for message in messages)


def _is_on(fields: Fields, name: str) -> bool:
    value = value_of(fields, name)
    if name == "logprobs":  # 0 asks for the logprobs of the tokens themselves
        return value is not None and value is not False
    return value not in (None, False, 0, "", [], {}, "none")


def _is_text(message: object) -> bool:
    """Return whether token ids alone say what the message says: not so for images."""
    if not isinstance(message, dict):
        return False
    content = message.get("content")
    if not isinstance(content, list):
        return True
    return all(
        isinstance(part, dict) and part.get("type") == "text" for part in content
    )


def is_deterministic(fields: Fields) -> bool:
    """Return whether the same prompt has the same answer each time."""
    return bool(value_of(fields, "temperature") == 0 or value_of(fields, "top_k") == 1)


def output_limit(kind: ContinuationKind, path: bytes, fields: Fields) -> int | None:
    """Return the most tokens of the answer; None: the engine's own limit."""
    for name in _LIMITS:
        value = value_of(fields, name)
        if isinstance(value, int):
            return value
    if path == TEXT_PATH and kind is ContinuationKind.VLLM:
        return USUAL_TEXT_LIMIT
    return None


def continued_head(path: bytes, head: RequestHead) -> RequestHead:
    """Return the head of a request that stands for the client's at another path."""
    if path == head.path:
        return head
    other = RequestHead(b"POST", path)
    other.accept = head.accept
    other.traceparent = head.traceparent
    return other


def text_request(path: bytes, fields: Fields, text: str, tokens: int) -> bytes:
    """Return the body that continues an answer by its text."""
    body: dict[str, Any] = {**fields, **_reduced_limits(fields, tokens)}
    if path == TEXT_PATH:
        body["prompt"] = value_of(fields, "prompt") + text
        return msgspec.json.encode(body)
    messages: list[Any] = value_of(fields, "messages")
    last = messages[-1]
    is_prefilled = isinstance(last, dict) and last.get("role") == "assistant"
    if is_prefilled and isinstance(last.get("content"), str):
        messages[-1] = {**last, "content": last["content"] + text}
    else:
        messages.append({"role": "assistant", "content": text})
    # vLLM and SGLang begin a new answer after the last message without these
    return msgspec.json.encode(
        {
            **body,
            "messages": messages,
            "add_generation_prompt": False,
            "continue_final_message": True,
        }
    )


def vllm_request(
    fields: Fields, prompt_ids: Sequence[int], ids: Sequence[int], limit: int | None
) -> bytes:
    """Return the body for /v1/completions that continues an answer by token ids.

    Args:
        limit: Most tokens that are left; None: the engine's own limit.
    """
    body: dict[str, Any] = {
        name: raw for name, raw in fields.items() if name not in _OF_CHAT_ALONE
    }
    body.update(_reduced_least(fields, len(ids)))
    body["prompt"] = [*prompt_ids, *ids]
    body["return_token_ids"] = True
    if limit is not None:
        body["max_tokens"] = limit - len(ids)
    return msgspec.json.encode(body)


def llama_request(
    fields: Fields, prompt: str, pieces: Sequence[int | str], limit: int | None
) -> bytes:
    """Return the body for /completion of llama.cpp.

    Args:
        pieces: Tokens so far, and texts where the engine gave no ids.
        limit: Most tokens that are left; None: the engine's own limit.
    """
    body: dict[str, Any] = {
        name: raw for name, raw in fields.items() if name not in _NOT_OF_LLAMA
    }
    body["prompt"] = [prompt, *pieces] if pieces else prompt
    body["return_tokens"] = True
    if limit is not None:
        body["n_predict"] = limit
    return msgspec.json.encode(body)


def _reduced_limits(fields: Fields, tokens: int) -> dict[str, int]:
    reduced = _reduced_least(fields, tokens)
    for name in _LIMITS:
        value = value_of(fields, name)
        if isinstance(value, int):
            reduced[name] = value - tokens
    return reduced


def _reduced_least(fields: Fields, tokens: int) -> dict[str, int]:
    least = value_of(fields, "min_tokens")
    return {"min_tokens": max(0, least - tokens)} if isinstance(least, int) else {}
