"""Requests to replicas for the tokens of prompts: the engine itself cuts them."""

from collections.abc import Callable, Sequence
from typing import Final

import msgspec

from corral.gateway.framing.answer_framing import AnswerHead
from corral.gateway.framing.request_head import RequestHead
from corral.gateway.replicas.replica_connection import (
    ConnectionPool,
    LossKind,
    ReplicaConnection,
)
from corral.gateway.replicas.replica_pool import ReplicaPool

MOST_ANSWER_BYTES: Final = 32 * 1024 * 1024
CHAT_PATH: Final = b"/v1/chat/completions"
TEXT_PATH: Final = b"/v1/completions"
_HEAD: Final = RequestHead(b"POST", b"/tokenize")
# fields of a request that decide which tokens its prompt has
_CHAT_FIELDS: Final = (
    "model",
    "messages",
    "tools",
    "chat_template",
    "chat_template_kwargs",
    "add_generation_prompt",
    "continue_final_message",
    "add_special_tokens",
)
_TEXT_FIELDS: Final = ("model", "prompt", "add_special_tokens")
# images are no text: their tokens say nothing about what they show
_OTHER_CONTENT: Final = (b'"image_url"', b'"input_audio"', b'"video_url"')

_RAW_FIELDS: Final = msgspec.json.Decoder(dict[str, msgspec.Raw])


class _Tokens(msgspec.Struct):
    tokens: list[int]


_ANSWER: Final = msgspec.json.Decoder(_Tokens)


def tokenize_body(path: bytes, body: bytes) -> bytes | None:
    """Return the body of a request for the tokens of a prompt; None if the prompt is
    not text.

    Args:
        path: Path of the request with the prompt.
    """
    names = {CHAT_PATH: _CHAT_FIELDS, TEXT_PATH: _TEXT_FIELDS}.get(path)
    if names is None or any(word in body for word in _OTHER_CONTENT):
        return None
    fields = _RAW_FIELDS.decode(body)
    if path == TEXT_PATH and not bytes(fields.get("prompt", b"")).startswith(b'"'):
        return None
    return msgspec.json.encode({name: fields[name] for name in names if name in fields})


class TokenizeRequest:
    """One request for tokens. Its receiver gets them once, or None.

    Args:
        until: Time after which it is given up.
    """

    __slots__ = ("_body", "_connection", "_parts", "_receive", "_size", "pool", "until")

    def __init__(
        self,
        pool: ReplicaPool,
        body: bytes,
        receive: Callable[[Sequence[int] | None], None],
        until: float,
    ) -> None:
        self.pool = pool
        self.until = until
        self._body = body
        self._receive: Callable[[Sequence[int] | None], None] | None = receive
        self._connection: ReplicaConnection | None = None
        self._parts: list[bytes] = []
        self._size = 0

    def start(self) -> None:
        """Send the request."""
        connection = self.pool.take_idle()
        if connection is None:
            self.pool.connect(self)
        else:
            self.connection_ready(connection)

    def cancel(self) -> None:
        self._end(None)

    def _end(self, tokens: Sequence[int] | None) -> None:
        receive = self._receive
        self._receive = None
        connection = self._connection
        self._connection = None
        if connection is not None:
            connection.abandon()
        if receive is not None:
            receive(tokens)

    def connection_ready(self, connection: ReplicaConnection) -> None:
        if self._receive is None:
            connection.pool.release(connection)
            return
        self._connection = connection
        request = self.pool.request(_HEAD, b"corral-tokenize", self._body)
        connection.send(self, request)

    def connection_refused(self, pool: ConnectionPool) -> None:
        self._end(None)

    def answer_begins(self, head: AnswerHead, payload: bytes, *, is_done: bool) -> None:
        if head.status == 200:
            self.answer_continues(payload, is_done=is_done)
            return
        self._connection = None if is_done else self._connection
        self._end(None)

    def answer_continues(self, payload: bytes, *, is_done: bool) -> None:
        self._parts.append(payload)
        self._size += len(payload)
        if is_done:
            self._connection = None
            self._end(_tokens_of(b"".join(self._parts)))
        elif self._size > MOST_ANSWER_BYTES:
            self._end(None)

    def answer_closed(self) -> None:
        self.answer_continues(b"", is_done=True)

    def answer_lost(self, kind: LossKind, message: str) -> None:
        self._connection = None
        self._end(None)


def _tokens_of(answer: bytes) -> Sequence[int] | None:
    try:
        return _ANSWER.decode(answer).tokens or None
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None
