"""Answers in the forms of OpenAI's API, which another replica continues by their text."""

import hashlib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from corral.serve.text_completion import (
    CHAT_PATH,
    TEXT_PATH,
    Completion,
    RequestNotValid,
    text_request_of,
)

CHAT = {"model": "chat", "messages": [{"role": "user", "content": "Hi"}]}


def next_byte(text: bytes, temperature: float) -> int:
    """One of the letters a to d, which the text and the temperature decide."""
    digest = hashlib.sha256(text[-128:] + str(temperature).encode()).digest()
    return ord("a") + digest[0] % 4


def completion(path: str, fields: dict[str, Any]) -> Completion:
    return Completion(text_request_of(path, fields), next_byte, "1")


def text_of(path: str, fields: dict[str, Any]) -> str:
    return "".join(completion(path, fields).characters())


def continued(path: str, fields: dict[str, Any], text: str) -> dict[str, Any]:
    """Return the request with which a gateway continues an answer by its text."""
    more: dict[str, Any] = {}
    if "max_tokens" in fields:
        more["max_tokens"] = fields["max_tokens"] - len(text)
    if path == TEXT_PATH:
        return fields | more | {"prompt": fields["prompt"] + text}
    messages = [*fields["messages"], {"role": "assistant", "content": text}]
    flags = {"add_generation_prompt": False, "continue_final_message": True}
    return fields | more | flags | {"messages": messages}


@given(
    path=st.sampled_from([CHAT_PATH, TEXT_PATH]),
    limit=st.none() | st.integers(1, 60),
    stop=st.none() | st.lists(st.text("abcd", min_size=1, max_size=5), max_size=3),
    temperature=st.sampled_from([None, 0, 0.7]),
    cut=st.integers(1, 59),
)
def test_an_answer_that_is_continued_by_its_text_is_the_same(
    path: str, limit: int | None, stop: list[str] | None, temperature: Any, cut: int
) -> None:
    fields: dict[str, Any] = {**CHAT, "prompt": "Hi", "temperature": temperature}
    fields |= {"stop": stop} if stop else {}
    fields |= {"max_tokens": limit or 60} if limit or path == TEXT_PATH else {}
    whole = text_of(path, fields)
    first = whole[:cut]
    if len(first) < len(whole):
        assert first + text_of(path, continued(path, fields, first)) == whole


@pytest.mark.parametrize("path", [CHAT_PATH, TEXT_PATH])
def test_a_stream_has_the_text_and_the_counts_of_the_whole_answer(path: str) -> None:
    fields = {**CHAT, "prompt": "Hi", "max_tokens": 20, "stream": True}
    usage = {"stream_options": {"include_usage": True}}
    whole = completion(path, fields).whole()
    *chunks, last = completion(path, fields | usage).chunks()
    assert last["choices"] == []
    assert last["usage"] == whole["usage"]
    assert whole["usage"]["completion_tokens"] == 20
    choices = [chunk["choices"][0] for chunk in chunks]
    pieces = [
        choice.get("delta", {}).get("content") or choice.get("text")
        for choice in choices
    ]
    choice = whole["choices"][0]
    text = choice["message"]["content"] if path == CHAT_PATH else choice["text"]
    assert "".join(filter(None, pieces)) == text
    assert [one["finish_reason"] for one in choices][-2:] == [None, "length"]
    assert {chunk["id"] for chunk in [*chunks, last]} == {whole["id"]}
    without = list(completion(path, fields).chunks())
    assert without == chunks


def test_an_answer_ends_before_a_stop_text() -> None:
    whole = text_of(TEXT_PATH, {"prompt": "Hi", "max_tokens": 40})
    stop = whole[10:13]
    ended = completion(TEXT_PATH, {"prompt": "Hi", "max_tokens": 40, "stop": stop})
    assert "".join(ended.characters()) == whole[: whole.index(stop)]
    assert ended.finish == "stop"


def test_the_usual_limits_are_those_of_openai_and_of_one_chat_answer() -> None:
    assert len(text_of(TEXT_PATH, {"prompt": "Hi"})) == 16
    assert len(text_of(CHAT_PATH, CHAT)) == 256


def test_parts_of_a_message_are_one_text() -> None:
    parts = [{"type": "text", "text": "H"}, {"type": "text", "text": "i"}]
    fields = {"messages": [{"role": "user", "content": parts}]}
    assert text_of(CHAT_PATH, fields) == text_of(CHAT_PATH, CHAT)


@pytest.mark.parametrize(
    ("path", "fields", "param"),
    [
        (CHAT_PATH, [], None),
        (CHAT_PATH, {}, "messages"),
        (CHAT_PATH, {"messages": ["Hi"]}, "messages"),
        (CHAT_PATH, {"messages": [{"role": "user"}]}, "messages"),
        (CHAT_PATH, {"messages": [{"role": "user", "content": [{"type": "image"}]}]}, "messages"),
        (CHAT_PATH, CHAT | {"model": 3}, "model"),
        (CHAT_PATH, CHAT | {"n": 2}, "n"),
        (CHAT_PATH, CHAT | {"max_tokens": 0}, "max_tokens"),
        (CHAT_PATH, CHAT | {"max_completion_tokens": True}, "max_completion_tokens"),
        (CHAT_PATH, CHAT | {"temperature": -1}, "temperature"),
        (CHAT_PATH, CHAT | {"temperature": float("nan")}, "temperature"),
        (CHAT_PATH, CHAT | {"stop": ["a"] * 17}, "stop"),
        (CHAT_PATH, CHAT | {"stop": [""]}, "stop"),
        (TEXT_PATH, {"prompt": ["a", "b"]}, "prompt"),
        (TEXT_PATH, {"prompt": [1, 2]}, "prompt"),
    ],
)  # fmt: skip
def test_a_request_that_cannot_be_answered_is_refused(
    path: str, fields: Any, param: str | None
) -> None:
    with pytest.raises(RequestNotValid) as refused:
        text_request_of(path, fields)
    assert refused.value.param == param


def test_a_prompt_of_any_characters_is_read() -> None:
    assert text_request_of(TEXT_PATH, {"prompt": "ü\ud800"}).prompt == "ü?".encode()
