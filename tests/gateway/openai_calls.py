"""The same calls with whichever version of the package `openai` is installed. Prints the
outcome of each as JSON.

    python tests/gateway/openai_calls.py URL KEY
"""

import json
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

import openai

MESSAGES: Any = [{"role": "user", "content": "hello"}]


def chat(client: openai.OpenAI) -> object:
    answer = client.chat.completions.create(model="chat", messages=MESSAGES)
    usage = answer.usage
    assert usage is not None
    return [
        answer.choices[0].message.content,
        usage.prompt_tokens,
        bool(answer._request_id),
    ]


def chat_stream(client: openai.OpenAI) -> object:
    stream = client.chat.completions.create(
        model="chat",
        messages=MESSAGES,
        stream=True,
        stream_options={"include_usage": True},
    )
    text, tokens = "", 0
    for part in stream:
        text += "".join(choice.delta.content or "" for choice in part.choices)
        tokens = part.usage.completion_tokens if part.usage else tokens
    return [text, tokens]


def completion(client: openai.OpenAI) -> object:
    answer = client.completions.create(model="chat", prompt="hello")
    return answer.choices[0].text


def embeddings(client: openai.OpenAI) -> object:
    answer = client.embeddings.create(
        model="chat", input=["a", "b"], encoding_format="float"
    )
    return [row.embedding for row in answer.data]


def response(client: openai.OpenAI) -> object:
    return client.responses.create(model="chat", input="hello").output_text


def stored_response(client: openai.OpenAI) -> object:
    made = client.responses.create(model="chat", input="hello")
    text = client.responses.retrieve(made.id).output_text
    client.responses.delete(made.id)
    missing = error_of(lambda: client.responses.retrieve(made.id))
    return [text, missing]


def response_stream(client: openai.OpenAI) -> object:
    stream = client.responses.create(model="chat", input="hello", stream=True)
    return [event.type for event in stream]


def models(client: openai.OpenAI) -> object:
    names = [model.id for model in client.models.list()]
    return [names, client.models.retrieve("org/name").id]


def transcription(client: openai.OpenAI) -> object:
    answer = client.audio.transcriptions.create(
        model="chat", file=("a.wav", b"RIFF0000WAVE", "audio/wav")
    )
    return answer.text


def error_of(call: Callable[[], object]) -> object:
    try:
        return call()
    except openai.APIStatusError as error:
        return [type(error).__name__, error.status_code, error.code]


def wrong_key(client: openai.OpenAI) -> object:
    other = client.with_options(api_key="sk-wrong")
    return error_of(lambda: chat(other))


def unknown_model(client: openai.OpenAI) -> object:
    return error_of(
        lambda: client.chat.completions.create(model="none", messages=MESSAGES)
    )


def bad_request(client: openai.OpenAI) -> object:
    return error_of(
        lambda: client.chat.completions.create(
            model="chat", messages=MESSAGES, max_tokens=-1
        )
    )


def engine_error(client: openai.OpenAI) -> object:
    once = client.with_options(max_retries=0)
    return error_of(
        lambda: once.chat.completions.create(
            model="chat", messages=[{"role": "user", "content": "fail"}]
        )
    )


def error_in_stream(client: openai.OpenAI) -> object:
    stream = client.chat.completions.create(
        model="chat", messages=[{"role": "user", "content": "cut"}], stream=True
    )
    parts = 0
    try:
        for _ in stream:
            parts += 1
    except openai.APIError as error:
        return [parts, error.code]
    return [parts, "no error"]


def limit_without_retries(client: openai.OpenAI) -> object:
    """Return the error of a second request beside a slow one, for a caller with a
    limit of one at once."""
    with _Slow(client):
        once = client.with_options(max_retries=0)
        try:
            chat(once)
        except openai.RateLimitError as error:
            wait = float(error.response.headers["retry-after"])
            return [error.code, 0 < wait <= 60]
    return "no error"


def limit_with_retries(client: openai.OpenAI) -> object:
    """Return the answer of such a request, which the client sends again."""
    with _Slow(client):
        return chat(client.with_options(max_retries=5))


class _Slow:
    """A request that takes a while, under way."""

    def __init__(self, client: openai.OpenAI) -> None:
        self._thread = threading.Thread(
            target=lambda: client.with_options(max_retries=0).chat.completions.create(
                model="chat", messages=[{"role": "user", "content": "slow"}]
            )
        )

    def __enter__(self) -> None:
        self._thread.start()
        time.sleep(0.3)  # until it is under way

    def __exit__(self, *error: object) -> None:
        self._thread.join()


CALLS = [
    chat,
    chat_stream,
    completion,
    embeddings,
    response,
    response_stream,
    stored_response,
    models,
    transcription,
    wrong_key,
    unknown_model,
    bad_request,
    engine_error,
    error_in_stream,
    limit_without_retries,
    limit_with_retries,
]


def main() -> None:
    url, key = sys.argv[1:]
    client = openai.OpenAI(base_url=url, api_key=key, timeout=20.0)
    outcomes: dict[str, object] = {}
    for call in CALLS:
        try:
            outcomes[call.__name__] = call(client)
        except Exception as error:
            outcomes[call.__name__] = f"{type(error).__name__}: {error}"
    print(json.dumps({"version": openai.__version__, "outcomes": outcomes}))


if __name__ == "__main__":
    main()
