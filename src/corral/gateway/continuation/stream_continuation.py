"""Continuation of a stream whose replica was lost: the client sees one stream.

The text and the token ids that were passed on are kept. Another replica gets them as a
part of the prompt, and its events are rewritten: they have the id of the first ones, no
second role, and a usage that counts all of the answer.
"""

import re
from typing import Any, Final

import msgspec

from corral.gateway.continuation.continuation_events import (
    DONE_EVENT,
    chunk_event,
    count_of,
    role_event,
    text_event,
    usage_event,
)
from corral.gateway.continuation.continuation_requests import (
    CHAT_PATH,
    LLAMA_PATH,
    LLAMA_TEMPLATE_PATH,
    MOST_BODY_BYTES,
    TEXT_PATH,
    USUAL_TEXT_LIMIT,
    ContinuationKind,
    Fields,
    can_be_continued,
    is_deterministic,
    llama_request,
    output_limit,
    read_fields,
    text_request,
    value_of,
    vllm_request,
)
from corral.gateway.continuation.continuation_shapes import is_chunk, is_llama_chunk
from corral.gateway.continuation.generated_pieces import GeneratedPieces
from corral.gateway.counting.token_counts import TokenCounts

_EVENT: Final = re.compile(rb".*?\r?\n\r?\n", re.DOTALL)
_DROPPED: Final = b""
# parts of a message whose beginning no other replica can take as a prompt
_NOT_CONTINUED: Final = (
    "tool_calls",
    "function_call",
    "reasoning_content",
    "reasoning",
    "refusal",
    "audio",
)


class StreamContinuation:
    """One stream that can move to another replica.

    Attributes:
        path: Where the next attempt is sent.
        body: Body of the next attempt.
        tokens: Tokens that were passed on.
        is_complete: Whether the answer has ended by itself.
        has_done: Whether [DONE] was passed on.
        is_lost: Whether the replica has reported that it cannot go on.
        is_preparing: Whether the next answer is a prompt, not yet a stream.
    """

    __slots__ = (
        "_base_tokens",
        "_can_continue",
        "_fields",
        "_finish",
        "_has_role",
        "_has_usage",
        "_identity",
        "_ids",
        "_is_continued",
        "_kind",
        "_limit",
        "_path",
        "_pending_ids",
        "_pieces",
        "_prompt",
        "_prompt_ids",
        "_prompt_tokens",
        "_texts",
        "_wants_usage",
        "body",
        "has_done",
        "is_complete",
        "is_lost",
        "is_preparing",
        "path",
        "tokens",
        "usage",
    )

    def __init__(
        self,
        kind: ContinuationKind,
        path: bytes,
        body: bytes,
        fields: Fields,
        answer_id: str,
    ) -> None:
        self._kind = kind
        self._path = path
        self._fields = fields
        self._limit = output_limit(kind, path, fields)
        options = value_of(fields, "stream_options")
        self._wants_usage = isinstance(options, dict) and bool(
            options.get("include_usage")
        )
        self._identity: dict[str, Any] = {}
        self._texts: list[str] = []
        self._ids: list[int] = []
        self._pending_ids: list[int] = []
        self._pieces = GeneratedPieces()
        self._prompt = ""
        self._prompt_ids: list[int] = []
        self._prompt_tokens: int | None = None
        self._base_tokens = 0
        self._can_continue = True
        self._is_continued = False
        self._finish: str | None = None
        self._has_role = False
        self._has_usage = False
        self.usage: TokenCounts | None = None
        self.tokens = 0
        self.is_complete = False
        self.has_done = False
        self.is_lost = False
        self.is_preparing = False
        self.path = path
        self.body = body
        self._begin(answer_id)

    @classmethod
    def begin(
        cls, kind: str, path: bytes, body: bytes, answer_id: str
    ) -> "StreamContinuation | None":
        """Return the continuation of a streaming request; None if it has none.

        Args:
            kind: The field `continues` of the service.
            answer_id: Identifier for answers of engines that give none.
        """
        if kind == "none" or len(body) > MOST_BODY_BYTES:
            return None
        fields = read_fields(body)
        by = ContinuationKind(kind)
        if fields is None or not can_be_continued(by, path, fields):
            return None
        return cls(by, path, body, fields, answer_id)

    def _begin(self, answer_id: str) -> None:
        if self._kind is ContinuationKind.VLLM:
            self.body = msgspec.json.encode({**self._fields, "return_token_ids": True})
        elif self._kind is ContinuationKind.LLAMA_CPP:
            prefix = "chatcmpl" if self._path == CHAT_PATH else "cmpl"
            self._identity = {
                "id": f"{prefix}-{answer_id}",
                "created": 0,
                "model": value_of(self._fields, "model"),
            }
            if self._path == CHAT_PATH:
                self.path = LLAMA_TEMPLATE_PATH
                self.is_preparing = True
            else:
                self._prepare(value_of(self._fields, "prompt"))

    def take_prompt(self, payload: bytes) -> bool:
        """Take the answer to the preparing request; return whether it has a prompt."""
        try:
            prompt = msgspec.json.decode(payload)["prompt"]
        except (msgspec.DecodeError, TypeError, KeyError):
            return False
        if not isinstance(prompt, str):
            return False
        self.is_preparing = False
        self._prepare(prompt)
        return True

    def _prepare(self, prompt: str) -> None:
        self._prompt = prompt
        self.path = LLAMA_PATH
        self.body = llama_request(self._fields, prompt, (), self._limit)

    # after a loss

    def move(self) -> bool:
        """Prepare the request to another replica; return whether there can be one."""
        self.is_lost = False
        if not self._can_continue or self.is_complete:
            return False
        self._pending_ids.clear()
        if self.tokens == 0:  # nothing was passed on but the beginning of a message
            self._is_continued = bool(self._identity)
            self._pieces.begin_attempt()
            return True
        remaining = None if self._limit is None else self._limit - self.tokens
        if remaining is not None and remaining <= 0:
            self._finish = "length"
            self.is_complete = True
            return False
        self._is_continued = True
        if self._kind is ContinuationKind.LLAMA_CPP:
            return self._move_llama()
        self._base_tokens = self.tokens
        return self._write_request(remaining)

    def _move_llama(self) -> bool:
        """Continue after the last token with a known id. Text after it is generated
        again and does not pass, which needs an engine that repeats itself."""
        pieces = self._pieces
        if pieces.needs_repetition and not is_deterministic(self._fields):
            return False
        pieces.begin_attempt()
        self._base_tokens = pieces.base_tokens
        limit = self._limit
        remaining = None if limit is None else limit - pieces.exact_tokens
        self.body = llama_request(self._fields, self._prompt, pieces.pieces, remaining)
        return True

    def _write_request(self, remaining: int | None) -> bool:
        if self._kind is ContinuationKind.VLLM:
            if not self._prompt_ids:
                return False
            self.path = TEXT_PATH
            self.body = vllm_request(
                self._fields, self._prompt_ids, self._ids, self._limit
            )
        else:
            if (
                self._path == TEXT_PATH
                and remaining is None
                and self.tokens < USUAL_TEXT_LIMIT
            ):
                return False  # engines disagree about the limit of such a request
            self.body = text_request(
                self._path, self._fields, "".join(self._texts), self.tokens
            )
        return True

    def closing_events(self, prompt_tokens: int) -> bytes:
        """Return the events that a complete answer lacks.

        Args:
            prompt_tokens: Estimate for an engine that has not reported them.
        """
        events: list[bytes] = []
        if self._finish is not None:
            events.append(text_event(self._path, self._identity, "", self._finish))
            self._finish = None
        if self._wants_usage and not self._has_usage:
            prompt = self._prompt_tokens
            counts = TokenCounts(
                prompt_tokens if prompt is None else prompt,
                0,
                self.tokens + len(self._pending_ids),
            )
            events.append(usage_event(self._path, self._identity, counts))
        return b"".join([*events, DONE_EVENT])

    # events of the replica

    def feed(self, data: bytes) -> bytes:
        """Take whole events; return those that the client gets."""
        passed: list[bytes] = []
        end = 0
        for match in _EVENT.finditer(data):
            end = match.end()
            passed.append(self._take_event(match[0]))
            if self.is_lost:
                return b"".join(passed)
        if end < len(data):  # a part of an event that is too long to be held
            self._can_continue = False
            passed.append(data[end:])
        return b"".join(passed)

    def _take_event(self, event: bytes) -> bytes:
        if not event.startswith(b"data:"):
            return event
        text = event[5:].strip()
        if text == b"[DONE]":
            self.is_complete = True
            self.has_done = True
            return event
        try:
            chunk = msgspec.json.decode(text)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            chunk = None
        if not isinstance(chunk, dict):
            self._can_continue = False
            return event
        if chunk.get("error") is not None:
            self.is_lost = self._can_continue and not self.is_complete
            return _DROPPED if self.is_lost else event
        if self.path == LLAMA_PATH:
            if is_llama_chunk(chunk):
                return self._take_llama(chunk)
            self._can_continue = False
            self.is_lost = True
            return _DROPPED
        if is_chunk(chunk):
            return self._take_openai(chunk, event)
        self._can_continue = False
        return event

    def _take_openai(self, chunk: dict[str, Any], event: bytes) -> bytes:
        if not self._identity:
            self._identity = {
                name: chunk[name]
                for name in ("id", "created", "model", "system_fingerprint")
                if name in chunk
            }
        is_rewritten = self._is_continued
        if self._kind is ContinuationKind.VLLM:
            is_rewritten = self._take_prompt_ids(chunk) or is_rewritten
        choices = chunk.get("choices") or []
        is_empty = False
        for choice in choices:
            is_rewritten = self._take_choice(choice) or is_rewritten
            is_empty = self._is_continued and self._is_empty(choice)
        self._take_usage(chunk)
        if not is_rewritten:
            return event
        if is_empty and not chunk.get("usage"):
            return _DROPPED
        return chunk_event(self._rewritten(chunk))

    def _take_prompt_ids(self, chunk: dict[str, Any]) -> bool:
        places = [chunk, *(chunk.get("choices") or [])]
        is_there = False
        for place in places:
            if "prompt_token_ids" in place:
                is_there = True
                ids = place.pop("prompt_token_ids")
                if ids and not self._prompt_ids:
                    self._prompt_ids = ids
                    self._prompt_tokens = len(ids)
        return is_there

    def _take_choice(self, choice: dict[str, Any]) -> bool:
        """Keep what a choice adds to the answer; return whether it has changed."""
        delta = choice.get("delta")
        text = choice.get("text") if delta is None else delta.get("content")
        if delta is not None and any(delta.get(name) for name in _NOT_CONTINUED):
            self._can_continue = False
        if choice.get("index", 0) != 0:
            self._can_continue = False
        is_changed = "token_ids" in choice
        ids = choice.pop("token_ids", None)
        if ids:
            self._pending_ids += ids
        if text:
            self._add_text(text)
        if choice.get("finish_reason") is not None:
            self.is_complete = True
        return is_changed

    def _add_text(self, text: str) -> None:
        if self._kind is ContinuationKind.VLLM:
            # ids without text are a part of a character: they count when it is whole
            if not self._pending_ids:
                self._can_continue = False
            self._ids += self._pending_ids
            self._pending_ids.clear()
            self.tokens = len(self._ids)
        else:
            self._texts.append(text)
            self.tokens += 1

    def _is_empty(self, choice: dict[str, Any]) -> bool:
        delta = choice.get("delta")
        text = choice.get("text") if delta is None else delta.get("content")
        return (
            not text
            and choice.get("finish_reason") is None
            and not (delta and any(delta.get(name) for name in _NOT_CONTINUED))
        )

    def _take_usage(self, chunk: dict[str, Any]) -> None:
        usage = chunk.get("usage")
        if not isinstance(usage, dict):
            return
        output = count_of(usage, "completion_tokens")
        prompt = count_of(usage, "prompt_tokens")
        details = usage.get("prompt_tokens_details")
        cached = count_of(details, "cached_tokens") if isinstance(details, dict) else 0
        if self._is_continued:
            output += self._base_tokens
            if self._prompt_tokens is None:
                self._prompt_tokens = max(0, prompt - self._base_tokens)
            prompt = self._prompt_tokens
            cached = min(cached, prompt)
            usage["prompt_tokens"] = prompt
            usage["completion_tokens"] = output
            usage["total_tokens"] = prompt + output
            if isinstance(details, dict):
                details["cached_tokens"] = cached
        elif self._prompt_tokens is None:
            self._prompt_tokens = prompt
        if not self._is_continued and self._kind is ContinuationKind.TEXT:
            self.tokens = max(self.tokens, output)
        if not chunk.get("choices"):
            self._has_usage = True
        self.usage = TokenCounts(prompt, min(cached, prompt), output)

    def _rewritten(self, chunk: dict[str, Any]) -> dict[str, Any]:
        """Return a chunk of a later replica as one of the first."""
        if not self._is_continued:
            return chunk
        for choice in chunk.get("choices") or []:
            delta = choice.get("delta")
            if delta is not None:
                delta.pop("role", None)
            elif self._path == CHAT_PATH:
                text = choice.pop("text", None)
                choice["delta"] = {"content": text} if text else {}
        if self._path == CHAT_PATH:
            chunk["object"] = "chat.completion.chunk"
        chunk.pop("system_fingerprint", None)
        return {**chunk, **self._identity}

    # events of llama.cpp's own endpoint

    def _take_llama(self, chunk: dict[str, Any]) -> bytes:
        prompt_tokens = count_of(chunk, "tokens_evaluated")
        if self._prompt_tokens is None:
            self._prompt_tokens = prompt_tokens
        elif prompt_tokens != self._prompt_tokens + self._base_tokens:
            # the texts between the ids were cut into other tokens than at first
            self._can_continue = False
            self.is_lost = True
            return _DROPPED
        passed = self._begin_llama_answer()
        text = chunk.get("content") or ""
        ids = chunk.get("tokens") or []
        self._pieces.add_ids(ids)
        predicted = count_of(chunk, "tokens_predicted")
        if text:
            new_text = self._pieces.add_text(text, predicted)
            if new_text is None:  # the engine does not repeat itself
                self._can_continue = False
                self.is_lost = True
                return _DROPPED
            self.tokens = max(self.tokens, self._base_tokens + predicted)
            if new_text:
                passed += text_event(self._path, self._identity, new_text, None)
        if not chunk.get("stop"):
            return passed
        self.is_complete = True
        finish = "length" if chunk.get("stop_type") == "limit" else "stop"
        timings = chunk.get("timings")
        cached = count_of(timings, "cache_n") if isinstance(timings, dict) else 0
        self.tokens = max(self.tokens, self._base_tokens + predicted)
        prompt = self._prompt_tokens
        self.usage = TokenCounts(prompt, min(cached, prompt), self.tokens)
        passed += text_event(self._path, self._identity, "", finish)
        if self._wants_usage:
            passed += usage_event(self._path, self._identity, self.usage)
        self.has_done = True
        return passed + DONE_EVENT

    def _begin_llama_answer(self) -> bytes:
        if self._has_role or self._path != CHAT_PATH:
            return b""
        self._has_role = True
        return role_event(self._identity)
