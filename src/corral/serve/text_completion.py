"""Requests for text and their answers, in the forms of OpenAI's API. No I/O."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

CHAT_PATH: Final = "/v1/chat/completions"
TEXT_PATH: Final = "/v1/completions"
USUAL_TEXT_LIMIT: Final = 16  # tokens of /v1/completions without max_tokens
USUAL_CHAT_LIMIT: Final = 256
MOST_TOKENS: Final = 100_000
MOST_STOPS: Final = 16
CONTEXT_BYTES: Final = 1024  # at most, on which the next byte depends
USUAL_TEMPERATURE: Final = 1.0
MOST_TEMPERATURE: Final = 2.0
_LIMITS: Final = ("max_completion_tokens", "max_tokens")

NextByte = Callable[[bytes, float], int]  # of a text, at a temperature


class RequestNotValid(Exception):
    """A request that cannot be answered. `param` is the name of the wrong field."""

    def __init__(self, message: str, param: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.param = param


@dataclass(frozen=True, slots=True, kw_only=True)
class TextRequest:
    """A request for text.

    Args:
        prompt: Bytes that the answer continues; each is one token.
        limit: Most tokens of the answer.
        temperature: 0 for the likeliest text.
        stops: Texts before which the answer ends.
        wants_usage: Whether a stream ends with the counts of its tokens.
    """

    is_chat: bool
    model: str
    prompt: bytes
    limit: int
    temperature: float = USUAL_TEMPERATURE
    stops: tuple[str, ...] = ()
    is_stream: bool = False
    wants_usage: bool = False


def text_request_of(path: str, fields: object) -> TextRequest:
    """Return the request of a body. Raises: RequestNotValid."""
    if not isinstance(fields, dict):
        raise RequestNotValid("the body must be a JSON object")
    if fields.get("n") not in (None, 1):
        raise RequestNotValid("only n: 1 is supported", "n")
    options = fields.get("stream_options") or {}
    is_chat = path == CHAT_PATH
    prefilled = ""
    if is_chat:
        prompt, prefilled = _chat_prompt(fields.get("messages"))
    else:
        prompt = _text(fields.get("prompt"), "prompt")
    return TextRequest(
        is_chat=is_chat,
        model=_text(fields.get("model", ""), "model"),
        prompt=prompt.encode(errors="replace"),
        limit=_limit(fields, is_chat=is_chat, prefilled=len(prefilled)),
        temperature=_temperature(fields.get("temperature")),
        stops=_stops(fields.get("stop")),
        is_stream=fields.get("stream") is True,
        wants_usage=isinstance(options, dict) and options.get("include_usage") is True,
    )


def _text(value: object, param: str) -> str:
    if isinstance(value, list) and len(value) == 1:
        value = value[0]
    if not isinstance(value, str):
        raise RequestNotValid(f"{param} must be text", param)
    return value


def _chat_prompt(messages: object) -> tuple[str, str]:
    """Return (the prompt of a chat, the beginning of the answer that it contains). A
    last message of the assistant is continued."""
    if not isinstance(messages, list) or not messages:
        raise RequestNotValid("messages must be a list of messages", "messages")
    turns = [(_role(message), _content(message)) for message in messages]
    role, prefilled = turns[-1]
    if role == "assistant":
        turns.pop()
    else:
        prefilled = ""
    lines = [f"{role}: {content}\n" for role, content in turns]
    return "".join([*lines, "assistant: ", prefilled]), prefilled


def _role(message: object) -> str:
    role = message.get("role") if isinstance(message, dict) else None
    if not isinstance(role, str):
        raise RequestNotValid("each message needs a role", "messages")
    return role


def _content(message: Mapping[str, Any]) -> str:
    content = message.get("content")
    if isinstance(content, list):
        texts = [part.get("text") for part in content if isinstance(part, dict)]
        content = None if len(texts) < len(content) else _joined(texts)
    if not isinstance(content, str):
        raise RequestNotValid("the content of a message must be text", "messages")
    return content


def _joined(texts: list[Any]) -> str | None:
    is_text = all(isinstance(text, str) for text in texts)
    return "".join(texts) if is_text else None


def _limit(fields: Mapping[str, Any], *, is_chat: bool, prefilled: int) -> int:
    """Return the most tokens of an answer. Without a limit in the request, all of the
    answer counts, also its beginning in the request: it has the same end when another
    replica continues it."""
    for name in _LIMITS:
        limit = fields.get(name)
        if limit is None:
            continue
        if isinstance(limit, bool) or not isinstance(limit, int) or limit < 1:
            raise RequestNotValid(f"{name} must be a number from 1 on", name)
        return min(limit, MOST_TOKENS)
    return max(0, USUAL_CHAT_LIMIT - prefilled) if is_chat else USUAL_TEXT_LIMIT


def _temperature(value: Any) -> float:
    if value is None:
        return USUAL_TEMPERATURE
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if is_number and 0 <= value <= MOST_TEMPERATURE:
        return float(value)
    raise RequestNotValid(
        f"temperature must be a number from 0 to {MOST_TEMPERATURE:g}", "temperature"
    )


def _stops(value: object) -> tuple[str, ...]:
    stops: Any = [value] if isinstance(value, str) else value or []
    is_list = isinstance(stops, list) and len(stops) <= MOST_STOPS
    if not is_list or not all(isinstance(stop, str) and stop for stop in stops):
        raise RequestNotValid(f"stop must be at most {MOST_STOPS} texts", "stop")
    return tuple(stops)


class Completion:
    """The answer to one request, while it is generated.

    Attributes:
        tokens: Tokens that were generated.
        finish: Why the answer has ended; None: it has not.
    """

    def __init__(
        self, request: TextRequest, next_byte: NextByte, answer_id: str
    ) -> None:
        self.request = request
        self.tokens = 0
        self.finish: str | None = None
        self._next_byte = next_byte
        prefix = "chatcmpl" if request.is_chat else "cmpl"
        self._identity = {
            "id": f"{prefix}-{answer_id}",
            "created": 0,
            "model": request.model,
        }

    def characters(self) -> Iterator[str]:
        """Yield the characters of the answer. Those that may be the beginning of a stop
        text are held back."""
        text = self.request.prompt
        pending = ""
        while self.tokens < self.request.limit:
            next_byte = self._next_byte(text, self.request.temperature)
            text = text[-CONTEXT_BYTES:] + bytes([next_byte])
            self.tokens += 1
            pending += chr(next_byte)
            stop = min(
                (pending.index(stop) for stop in self.request.stops if stop in pending),
                default=None,
            )
            if stop is not None:
                yield from pending[:stop]
                self.finish = "stop"
                return
            withheld_count = _held_back(pending, self.request.stops)
            yield from pending[: len(pending) - withheld_count]
            pending = pending[len(pending) - withheld_count :]
        yield from pending
        self.finish = "length"

    def whole(self) -> dict[str, Any]:
        """Return the whole answer."""
        text = "".join(self.characters())
        if self.request.is_chat:
            content: dict[str, Any] = {
                "message": {"role": "assistant", "content": text}
            }
        else:
            content = {"text": text}
        return {
            **self._identity,
            "object": "chat.completion" if self.request.is_chat else "text_completion",
            "choices": [self._choice(content, self.finish)],
            "usage": self._usage(),
        }

    def chunks(self) -> Iterator[dict[str, Any]]:
        """Yield the answer as the chunks of a stream, one for each character."""
        if self.request.is_chat:
            yield self._chunk({"delta": {"role": "assistant", "content": ""}})
        for character in self.characters():
            if self.request.is_chat:
                yield self._chunk({"delta": {"content": character}})
            else:
                yield self._chunk({"text": character})
        last: dict[str, Any] = {"delta": {}} if self.request.is_chat else {"text": ""}
        yield self._chunk(last, self.finish)
        if self.request.wants_usage:
            yield {**self._chunk(last), "choices": [], "usage": self._usage()}

    def _chunk(
        self, content: Mapping[str, Any], finish: str | None = None
    ) -> dict[str, Any]:
        is_chat = self.request.is_chat
        return {
            **self._identity,
            "object": "chat.completion.chunk" if is_chat else "text_completion",
            "choices": [self._choice(content, finish)],
        }

    @staticmethod
    def _choice(content: Mapping[str, Any], finish: str | None) -> dict[str, Any]:
        return {"index": 0, **content, "logprobs": None, "finish_reason": finish}

    def _usage(self) -> dict[str, int]:
        prompt = len(self.request.prompt)
        return {
            "prompt_tokens": prompt,
            "completion_tokens": self.tokens,
            "total_tokens": prompt + self.tokens,
        }


def _held_back(text: str, stops: tuple[str, ...]) -> int:
    """Return the length of the longest end of the text with which a stop text begins."""
    longest = max(map(len, stops), default=1) - 1
    for length in range(min(longest, len(text)), 0, -1):
        if any(stop.startswith(text[-length:]) for stop in stops):
            return length
    return 0
