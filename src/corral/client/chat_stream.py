"""Chat with a service through the gateway, as OpenAI's API has it: the answer arrives
as a stream."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from corral.client.request_rules import CONNECT_TIMEOUT
from corral.client.sse import Parser
from corral.domain.errors import Trouble

if TYPE_CHECKING:
    import ssl

    import httpx2

ANSWER_SECONDS: Final = 600.0  # without any byte of the answer
Message = Mapping[str, str]


class ChatFailed(Trouble):
    """The gateway did not answer a chat request, or the answer broke off."""

    code = "chat_failed"


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatPiece:
    """Piece of an answer. `tokens`: number of tokens of the whole answer, which only
    the last piece of some engines holds."""

    text: str
    tokens: int | None = None


def stream_chat(
    url: str,
    token: str,
    model: str,
    messages: Sequence[Message],
    trusted: "ssl.SSLContext | None" = None,
) -> Iterator[ChatPiece]:
    """Yield the answer of the model piece by piece. `url` is the base URL of the
    gateway, without /v1, and `trusted` verifies its certificate (default: the machine's
    authorities do). Closing the iterator ends the request.

    Raises: ChatFailed.
    """
    import httpx2

    body = {
        "model": model,
        "messages": list(messages),
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    timeout = httpx2.Timeout(ANSWER_SECONDS, connect=CONNECT_TIMEOUT)
    try:
        with (
            httpx2.Client(
                timeout=timeout,
                trust_env=False,
                verify=True if trusted is None else trusted,
            ) as http,
            http.stream(
                "POST",
                f"{url}/v1/chat/completions",
                json=body,
                headers={"Authorization": f"Bearer {token}"},
            ) as answer,
        ):
            if answer.status_code >= 400:
                raise _refusal(answer.status_code, answer.read())
            kind = answer.headers.get("Content-Type", "")
            if kind.startswith("application/json"):  # of a server that does not stream
                yield _read_piece(answer.read().decode(errors="replace"))
            else:
                yield from _pieces_of(answer)
    except httpx2.TransportError as error:
        raise ChatFailed(
            f"the gateway at {url} does not answer: {error}",
            hint="run: corral service ls",
        ) from None


def _pieces_of(answer: "httpx2.Response") -> Iterator[ChatPiece]:
    parser = Parser()
    for chunk in answer.iter_raw():
        for event in parser.feed(chunk):
            if event.data == "[DONE]":
                return
            yield _read_piece(event.data)


def _read_piece(data: str) -> ChatPiece:
    """Read one event of the stream, or a whole answer. Raises: ChatFailed."""
    try:
        value = json.loads(data)
    except ValueError:
        raise ChatFailed(f"the answer is not valid JSON: {data[:80]!r}") from None
    if "error" in value:
        raise ChatFailed(f"the answer broke off: {_message_of(value)}")
    choices = value.get("choices") or [{}]
    message = choices[0].get("delta") or choices[0].get("message") or {}
    text = message.get("content") or ""
    usage = value.get("usage") or {}
    return ChatPiece(text=text, tokens=usage.get("completion_tokens"))


def _refusal(status: int, content: bytes) -> ChatFailed:
    try:
        message = _message_of(json.loads(content))
    except ValueError:
        message = content[:200].decode(errors="replace")
    return ChatFailed(
        f"the gateway has refused the request with status {status}: {message}",
        hint="run: corral service ls",
    )


def _message_of(value: Any) -> str:
    error = value.get("error") if isinstance(value, Mapping) else None
    message = error.get("message") if isinstance(error, Mapping) else error
    return str(message or value)[:500]
