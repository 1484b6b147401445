"""A stream that moves to another replica, cut at every byte, is the stream of one."""

import json
import re
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from corral.gateway.continuation.stream_continuation import StreamContinuation
from corral.gateway.framing.event_stream import EventStream
from tests.gateway.engines import CHAT, TEXT, Engine, LlamaEngine

LIMIT = 16
KINDS = ("text", "vllm", "llama.cpp")
MESSAGES = [{"role": "user", "content": "ab é"}]


def engine_of(kind: str) -> Engine:
    if kind == "llama.cpp":
        return LlamaEngine()
    return Engine(is_exact=kind == "text")


def body_of(path: bytes, **fields: object) -> dict[str, Any]:
    prompt = {"messages": MESSAGES} if path == CHAT else {"prompt": "ab é"}
    options = {"stream_options": {"include_usage": True}}
    body = {"model": "m", "stream": True, "max_tokens": LIMIT, **prompt, **options}
    return {**body, **fields}


@dataclass
class Seen:
    """A stream as a client reads it."""

    text: str
    ids: set[str]
    roles: int
    finishes: list[str]
    usages: list[dict[str, Any]]
    dones: int
    extra: set[str]


def read(stream: bytes) -> Seen:
    seen = Seen("", set(), 0, [], [], 0, set())
    for event in stream.decode().split("\n\n")[:-1]:
        payload = event.removeprefix("data: ")
        if payload == "[DONE]":
            seen.dones += 1
            continue
        chunk = json.loads(payload)
        seen.ids.add(chunk["id"])
        seen.extra |= chunk.keys() & {"prompt_token_ids", "tokens", "error"}
        if chunk.get("usage"):
            seen.usages.append(chunk["usage"])
        for choice in chunk["choices"]:
            seen.extra |= choice.keys() & {"token_ids", "prompt_token_ids"}
            delta = choice.get("delta", {})
            seen.text += (
                delta.get("content") or "" if "delta" in choice else choice["text"]
            )
            seen.roles += "role" in delta
            if choice["finish_reason"]:
                seen.finishes.append(choice["finish_reason"])
    return seen


def start(kind: str, path: bytes, body: Any, engine: Engine) -> StreamContinuation:
    continuation = StreamContinuation.begin(kind, path, json.dumps(body).encode(), "x")
    assert continuation is not None
    if continuation.is_preparing:
        text = engine.stream(continuation.path, json.loads(continuation.body))
        assert continuation.take_prompt(text)
    return continuation


def relay(
    kind: str, path: bytes, cuts: list[int], engine: Engine, **fields: object
) -> bytes | None:
    """Return what the client gets if each attempt is cut after so many bytes; None if
    the stream cannot be continued."""
    continuation = start(kind, path, body_of(path, **fields), engine)
    passed = b""
    for cut in [*cuts, 1 << 30]:
        stream = engine.stream(continuation.path, json.loads(continuation.body))
        passed += continuation.feed(EventStream().feed(stream[:cut]))
        if cut >= len(stream):
            return passed
        if not continuation.move():
            if not continuation.is_complete:
                return None
            closing = continuation.closing_events(99)
            return passed + (b"" if continuation.has_done else closing)
    raise AssertionError


def whole(kind: str, path: bytes, **fields: object) -> bytes:
    passed = relay(kind, path, [], engine_of(kind), **fields)
    assert passed is not None
    return passed


def first_stream(kind: str, path: bytes) -> bytes:
    """Return the stream of the first replica, as the engine sends it."""
    engine = engine_of(kind)
    continuation = start(kind, path, body_of(path), engine)
    return engine.stream(continuation.path, json.loads(continuation.body))


def check_same(moved: bytes | None, expected: Seen) -> None:
    assert moved is not None
    seen = read(moved)
    assert seen.text == expected.text
    assert seen.finishes == expected.finishes == ["length"]
    assert (seen.roles, seen.dones, seen.extra) == (expected.roles, 1, set())
    assert len(seen.ids) == 1
    assert [usage["completion_tokens"] for usage in seen.usages] == [LIMIT]
    for usage in seen.usages:
        assert usage["total_tokens"] == usage["prompt_tokens"] + LIMIT
        details = usage["prompt_tokens_details"]
        assert details["cached_tokens"] <= usage["prompt_tokens"]


@pytest.mark.parametrize("path", [CHAT, TEXT])
@pytest.mark.parametrize("kind", KINDS)
def test_the_text_is_the_same_wherever_the_stream_is_cut(
    kind: str, path: bytes
) -> None:
    undisturbed = whole(kind, path)
    expected = read(undisturbed)
    assert "\u00e9" in expected.text or kind == "text"
    for cut in range(len(first_stream(kind, path))):
        check_same(relay(kind, path, [cut], engine_of(kind)), expected)


@pytest.mark.parametrize("kind", KINDS)
def test_the_text_is_the_same_after_two_cuts_at_any_two_events(kind: str) -> None:
    expected = read(whole(kind, CHAT))
    ends = [match.end() for match in re.finditer(b"\n\n", first_stream(kind, CHAT))]
    for first in ends:
        for second in ends[: LIMIT // 2]:
            moved = relay(kind, CHAT, [first, second], engine_of(kind))
            check_same(moved, expected)


@settings(max_examples=60, deadline=None)
@given(
    kind=st.sampled_from(KINDS),
    path=st.sampled_from([CHAT, TEXT]),
    cuts=st.lists(st.integers(0, 5000), max_size=5),
)
def test_a_stream_may_move_more_than_once(
    kind: str, path: bytes, cuts: list[int]
) -> None:
    check_same(relay(kind, path, cuts, engine_of(kind)), read(whole(kind, path)))


def test_token_ids_are_exact_where_text_is_not() -> None:
    path = CHAT
    expected = read(whole("vllm", path)).text
    texts = []
    stream = Engine(is_exact=False).stream(path, body_of(path))
    for cut in range(300, len(stream), 97):
        moved = relay("text", path, [cut], Engine(is_exact=False))
        texts.append(moved and read(moved).text == expected)
    assert False in texts


def test_a_changed_tokenization_is_noticed_by_its_count() -> None:
    engine = LlamaEngine(adds_tokens=True)
    continuation = start("llama.cpp", TEXT, body_of(TEXT), engine)
    stream = engine.stream(continuation.path, json.loads(continuation.body))
    continuation.feed(EventStream().feed(stream[: len(stream) // 2]))
    assert continuation.move()
    again = engine.stream(continuation.path, json.loads(continuation.body))
    assert continuation.feed(EventStream().feed(again)) == b""
    assert continuation.is_lost
    assert not continuation.move()


def test_bytes_that_are_no_text_are_generated_again_where_that_is_exact() -> None:
    def engine() -> LlamaEngine:
        return LlamaEngine(rest=0)  # half a character is followed by a letter

    fields = {"temperature": 0}
    expected = read(relay("llama.cpp", TEXT, [], engine(), **fields) or b"")
    assert expected.text.count("\ufffd") > 1
    stream = engine().stream(
        b"/completion", {"prompt": "ab \u00e9", "n_predict": LIMIT}
    )
    ends = [match.end() for match in re.finditer(b"\n\n", stream)]
    for first in ends:
        for second in ends:
            moved = relay("llama.cpp", TEXT, [first, second], engine(), **fields)
            check_same(moved, expected)
    assert relay("llama.cpp", TEXT, [ends[-3]], engine()) is None


def test_text_that_differs_when_generated_again_does_not_pass() -> None:
    engine = LlamaEngine(rest=0)
    continuation = start("llama.cpp", TEXT, body_of(TEXT, temperature=0), engine)
    stream = engine.stream(continuation.path, json.loads(continuation.body))
    end = stream.index(b"\n\n", len(stream) // 2) + 2
    assert "\ufffd" in read(continuation.feed(stream[:end])).text
    assert continuation.move()
    other = LlamaEngine(rest=1).stream(b"/completion", json.loads(continuation.body))
    assert "\ufffd" not in read(continuation.feed(other)).text
    assert continuation.is_lost
    assert not continuation.move()


NEVER: dict[str, dict[str, Any]] = {
    "n": {"n": 2},
    "best_of": {"best_of": 2},
    "json": {"response_format": {"type": "json_object"}},
    "schema": {"guided_json": {}, "structured_outputs": {"json": {"type": "object"}}},
    "grammar": {"grammar": "root ::= x"},
    "logprobs": {"logprobs": True},
    "logprobs of completions": {"logprobs": 0},
    "echo": {"echo": True},
    "own ids": {"return_token_ids": True},
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", NEVER)
def test_such_streams_are_never_continued(name: str, kind: str) -> None:
    for path in (CHAT, TEXT):
        body = json.dumps(body_of(path, **NEVER[name])).encode()
        assert StreamContinuation.begin(kind, path, body, "x") is None


@pytest.mark.parametrize(
    ("kind", "fields"),
    [
        ("vllm", {"tools": [{"type": "function"}]}),
        ("llama.cpp", {"tools": [{"type": "function"}]}),
        ("vllm", {"stop": ["x"]}),
        ("vllm", {"messages": [{"content": [{"type": "image_url"}]}]}),
        ("text", {"messages": []}),
    ],
)
def test_what_ids_or_text_cannot_say_is_not_continued(kind: str, fields: Any) -> None:
    body = json.dumps(body_of(CHAT, **fields)).encode()
    assert StreamContinuation.begin(kind, CHAT, body, "x") is None


def test_other_paths_and_services_without_it_have_no_continuation() -> None:
    body = json.dumps(body_of(CHAT)).encode()
    assert StreamContinuation.begin("none", CHAT, body, "x") is None
    assert StreamContinuation.begin("text", b"/v1/responses", body, "x") is None
    assert StreamContinuation.begin("text", CHAT, b"[]", "x") is None
    ids = json.dumps(body_of(TEXT, prompt=[1, 2])).encode()
    assert StreamContinuation.begin("vllm", TEXT, ids, "x") is None


@pytest.mark.parametrize(
    "delta",
    [
        {"tool_calls": [{"index": 0, "function": {"arguments": '{"a'}}]},
        {"reasoning_content": "first"},
    ],
)
def test_a_message_with_a_partial_tool_call_is_not_continued(delta: object) -> None:
    continuation = start("text", CHAT, body_of(CHAT), Engine())
    choice = {"index": 0, "delta": delta, "finish_reason": None}
    event = b"data: %b\n\n" % json.dumps({"id": "1", "choices": [choice]}).encode()
    assert continuation.feed(event) == event
    assert not continuation.move()


def test_a_role_in_every_event_passes_only_from_the_first_replica() -> None:
    engine = Engine(repeats_role=True)
    body = body_of(CHAT)
    continuation = start("text", CHAT, body, engine)
    stream = engine.stream(CHAT, body)
    cut = stream.index(b"\n\n", len(stream) // 2) + 2
    assert read(continuation.feed(stream[:cut])).roles > 1
    assert continuation.move()
    again = engine.stream(continuation.path, json.loads(continuation.body))
    assert read(continuation.feed(again)).roles == 0


def test_text_passes_unchanged_before_a_cut() -> None:
    engine = Engine()
    continuation = start("text", CHAT, body_of(CHAT), engine)
    stream = b": ping\n\n" + engine.stream(CHAT, body_of(CHAT))
    assert continuation.feed(stream) == stream


def test_an_error_inside_the_stream_is_a_loss_and_does_not_pass() -> None:
    engine = Engine()
    continuation = start("text", CHAT, body_of(CHAT), engine)
    stream = engine.stream(CHAT, body_of(CHAT))
    begun = stream[: stream.index(b"\n\n", 500) + 2]
    error = b'data: {"error": {"message": "engine died"}}\n\ndata: [DONE]\n\n'
    assert continuation.feed(begun + error) == begun
    assert continuation.is_lost
    assert continuation.move()


def test_a_completion_without_a_limit_is_continued_only_beyond_the_usual_one() -> None:
    for events, is_continued in ((5, False), (20, True)):
        continuation = start("text", TEXT, body_of(TEXT, max_tokens=None), Engine())
        for _ in range(events):
            continuation.feed(b'data: {"id": "1", "choices": [{"text": "a"}]}\n\n')
        assert continuation.move() is is_continued


def test_an_assistant_message_of_the_client_is_extended() -> None:
    messages = [*MESSAGES, {"role": "assistant", "content": "so "}]
    continuation = start("text", CHAT, body_of(CHAT, messages=messages), Engine())
    delta = {"index": 0, "delta": {"content": "far"}}
    continuation.feed(b"data: %b\n\n" % json.dumps({"choices": [delta]}).encode())
    assert continuation.move()
    body = json.loads(continuation.body)
    assert body["messages"][1:] == [{"role": "assistant", "content": "so far"}]
    assert body["max_tokens"] == LIMIT - 1
