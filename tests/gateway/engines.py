"""Deterministic engines: each next token follows from all tokens before it, so a stream
that is continued must have the text of one that is not."""

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any
from zlib import crc32

from tests.gateway.worlds import STREAM_HEAD, ReplicaSide, Request, chunk

# "\xc3" and "\xa9" are tokens of half a character; "ab" is also "a" and "b"
VOCABULARY = [b"a", b"b", b"ab", b" c", b"d\n", b'"', b"\xc3", b"\xa9", b"[DONE]", b"e"]
HALF, REST = 6, 7
CHAT = b"/v1/chat/completions"
TEXT = b"/v1/completions"


def tokens_of(text: str) -> list[int]:
    """Return the tokens of a text, the longest first."""
    data = text.encode()
    tokens = []
    while data:
        fitting = [token for token in VOCABULARY if data.startswith(token)]
        longest = max(fitting, key=len, default=data[:1])
        known = longest in VOCABULARY
        tokens.append(VOCABULARY.index(longest) if known else 100 + longest[0])
        data = data[len(longest) :]
    return tokens


@cache
def next_token(tokens: tuple[int, ...], rest: int = REST) -> int:
    if tokens and tokens[-1] == HALF:
        return rest
    token = crc32(repr(tokens).encode()) % len(VOCABULARY)
    return token if token != REST else HALF


@dataclass
class Step:
    """One step of a generation: the new token, and the text that is whole with it."""

    token: int
    text: str
    count: int


def generate(prompt: Sequence[int], limit: int, rest: int) -> Iterator[Step]:
    tokens = tuple(prompt)
    held = b""
    for count in range(1, limit + 1):
        token = next_token(tokens, rest)
        tokens = (*tokens, token)
        held += VOCABULARY[token]
        text = "" if token == HALF else held.decode(errors="replace")
        held = held if token == HALF else b""
        yield Step(token, text, count)


def data(chunk: object) -> bytes:
    return b"data: " + json.dumps(chunk).encode() + b"\n\n"


@dataclass
class Engine:
    """Engine that cuts texts into tokens: exact only if it does so as it generates."""

    is_exact: bool = True
    repeats_role: bool = False
    rest: int = REST
    requests: list[tuple[bytes, Any]] = field(default_factory=list)

    def stream(self, path: bytes, body: Any) -> bytes:
        """Return the whole stream of an answer."""
        self.requests.append((path, body))
        return b"".join(self._chunks(path, body))

    def prompt(self, path: bytes, body: Any) -> list[int]:
        if path == TEXT:
            prompt = body["prompt"]
            return list(prompt) if isinstance(prompt, list) else self.cut(prompt)
        return self.cut(template(body["messages"]))

    def cut(self, text: str) -> list[int]:
        if not self.is_exact:
            return tokens_of(text)
        singles = {token.decode(): place for place, token in enumerate(VOCABULARY[:2])}
        return [singles.get(letter, 200 + ord(letter)) for letter in text]

    def steps(self, prompt: Sequence[int], limit: int) -> Iterator[Step]:
        if not self.is_exact:
            yield from generate(prompt, limit, self.rest)
            return
        tokens = tuple(prompt)  # of one letter, which texts are cut into as well
        for count in range(1, limit + 1):
            token = next_token(tokens) % 2
            tokens = (*tokens, token)
            yield Step(token, "ab"[token], count)

    def _chunks(self, path: bytes, body: Any) -> Iterator[bytes]:
        prompt = self.prompt(path, body)
        limit = body.get("max_tokens") or body.get("max_completion_tokens") or 16
        with_ids = bool(body.get("return_token_ids"))
        identity = {"id": f"id-{len(self.requests)}", "created": 7, "model": "m"}
        if path == CHAT:
            role: dict[str, Any] = {"role": "assistant", "content": ""}
            first = choice_of(path, role, None)
            more = {"prompt_token_ids": prompt} if with_ids else {}
            yield data({**identity, "choices": [first], **more})
        for step in self.steps(prompt, limit):
            finish = "length" if step.count == limit else None
            delta: Any = {"content": step.text} if path == CHAT else step.text
            if path == CHAT and self.repeats_role:
                delta["role"] = "assistant"
            choice = choice_of(path, delta, finish)
            if with_ids:
                choice["token_ids"] = [step.token]
                if path == TEXT and step.count == 1:
                    choice["prompt_token_ids"] = prompt
            yield data({**identity, "choices": [choice], "usage": None})
        if (body.get("stream_options") or {}).get("include_usage"):
            usage = {
                "prompt_tokens": len(prompt),
                "completion_tokens": limit,
                "total_tokens": len(prompt) + limit,
                "prompt_tokens_details": {"cached_tokens": len(prompt) // 2},
            }
            yield data({**identity, "choices": [], "usage": usage})
        yield b"data: [DONE]\n\n"


def choice_of(path: bytes, value: object, finish: str | None) -> dict[str, Any]:
    name = "delta" if path == CHAT else "text"
    return {"index": 0, name: value, "logprobs": None, "finish_reason": finish}


def template(messages: Sequence[dict[str, str]]) -> str:
    """Return the prompt of a chat; an answer that has begun stays open."""
    text = "".join(f"<{one['role']}>{one['content']}" for one in messages)
    return text if messages[-1]["role"] == "assistant" else f"{text}<assistant>"


@dataclass
class LlamaEngine(Engine):
    """Engine with the own endpoints of llama.cpp: ids of half characters are missing."""

    is_exact: bool = False
    adds_tokens: bool = False

    def stream(self, path: bytes, body: Any) -> bytes:
        self.requests.append((path, body))
        if path == b"/apply-template":
            return json.dumps({"prompt": template(body["messages"])}).encode()
        assert path == b"/completion"
        return b"".join(self._native_chunks(body))

    def _native_chunks(self, body: Any) -> Iterator[bytes]:
        parts = body["prompt"] if isinstance(body["prompt"], list) else [body["prompt"]]
        prompt: list[int] = []
        for part in parts:
            prompt += [part] if isinstance(part, int) else tokens_of(part)
        if self.adds_tokens and len(parts) > 1:
            prompt.append(0)
        limit = body["n_predict"]
        counts = {"tokens_evaluated": len(prompt)}
        for step in self.steps(prompt, limit):
            if step.text:
                yield data(
                    {
                        "index": 0,
                        "content": step.text,
                        "tokens": [step.token],
                        "stop": False,
                        "tokens_predicted": step.count,
                        **counts,
                    }
                )
        yield data(
            {
                "content": "",
                "tokens": [],
                "stop": True,
                "stop_type": "limit",
                "tokens_predicted": limit,
                **counts,
                "timings": {"cache_n": len(prompt) // 2},
            }
        )


def behave_as(
    engine: Engine, cut_at: Callable[[Request], int | None]
) -> Callable[[Request, ReplicaSide], None]:
    """Return the behaviour of a replica with this engine.

    Args:
        cut_at: Bytes of the stream after which the replica dies; None: never.
    """

    def behave(request: Request, side: ReplicaSide) -> None:
        path = request.head.split(b" ")[1]
        text = engine.stream(path, request.json)
        if path == b"/apply-template":
            side.write(
                b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n%b" % (len(text), text)
            )
            return
        cut = cut_at(request)
        side.write(STREAM_HEAD)
        side.write(chunk(text if cut is None else text[:cut]) if cut != 0 else b"")
        if cut is None:
            side.write(b"0\r\n\r\n")
        else:
            side.close()

    return behave
