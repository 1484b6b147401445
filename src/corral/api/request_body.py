"""Reading of whole request bodies, with limits on size, time, depth and form before the
body is parsed."""

import asyncio
import json
import re
from collections import Counter
from collections.abc import Iterable
from typing import Any, Final

from starlette.types import Message, Receive, Scope

from corral.api.errors import EncodingRefused, RequestInvalid
from corral.domain.errors import TooLarge

BODY_BYTES: Final = 8 * 1024 * 1024
FORM: Final = b"application/x-www-form-urlencoded"
OPEN_BYTES: Final = 8 * 1024  # of a body that needs no token
BODY_SECONDS: Final = 30.0
BODY_SIZE: Final = "corral.body_bytes"  # in the scope: of what was read
DEPTH: Final = 64
# of one object: a form makes an error of each that it does not know
MOST_KEYS: Final = 10_000
# Possessive, and also without its end: else a search starts over at each quote of an
# open string.
_STRING: Final = re.compile(rb'"(?:[^"\\]++|\\.)*+"?', re.DOTALL)
_BRACKETS: Final = re.compile(rb"[\[\]{}]")


def check_headers(headers: Iterable[tuple[bytes, bytes]], most_bytes: int) -> None:
    """Check that the headers announce an acceptable body: not compressed, and at most
    `most_bytes` long.

    Raises: EncodingRefused, TooLarge, RequestInvalid.
    """
    for name, value in headers:
        if name == b"content-encoding" and value.strip().lower() not in (
            b"",
            b"identity",
        ):
            raise EncodingRefused(
                "compressed request bodies are not accepted",
                hint="send the body without Content-Encoding",
            )
        if name == b"content-length":
            if not value.isdigit() or len(value) > 18:
                raise RequestInvalid(
                    "the Content-Length header is not a number of bytes"
                )
            if int(value) > most_bytes:
                raise too_large(most_bytes)


def too_large(most_bytes: int) -> TooLarge:
    return TooLarge(
        f"the request body is larger than {most_bytes:,} bytes",
        hint="send less data, or split it into several requests",
    )


async def read_json(
    scope: Scope, receive: Receive, most_bytes: int = BODY_BYTES
) -> Receive:
    """Read the whole body and check it. Return a receive function that yields the body
    again.

    Raises: TooLarge, EncodingRefused, RequestInvalid.
    """
    check_headers(scope["headers"], most_bytes)
    body = bytearray()
    try:
        async with asyncio.timeout(BODY_SECONDS):
            while True:
                message = await receive()
                body += message.get("body", b"")
                if len(body) > most_bytes:
                    raise too_large(most_bytes)
                if message["type"] != "http.request" or not message.get("more_body"):
                    break
    except TimeoutError:
        raise RequestInvalid(
            f"the request body did not arrive within {BODY_SECONDS:.0f} s"
        ) from None
    if not _is_form(scope["headers"]):
        check_json(bytes(body))
    scope[BODY_SIZE] = len(body)
    is_replayed = False

    async def again() -> Message:
        nonlocal is_replayed
        if is_replayed:
            return await receive()
        is_replayed = True
        return {"type": "http.request", "body": bytes(body), "more_body": False}

    return again


def _is_form(headers: Iterable[tuple[bytes, bytes]]) -> bool:
    """Return whether the headers announce a form of a web page. No route accepts that
    as JSON."""
    return any(name == b"content-type" and value == FORM for name, value in headers)


def check_json(body: bytes) -> None:
    """Check that the body is JSON which all parsers read alike, and is not nested too
    deeply.

    Raises: RequestInvalid.
    """
    if not body:
        return
    depth = 0
    for bracket in _BRACKETS.finditer(_STRING.sub(b'""', body)):
        depth += 1 if bracket.group() in b"[{" else -1
        if depth > DEPTH:
            raise RequestInvalid(
                f"the JSON of the request body is nested more than {DEPTH} levels deep"
            )
    try:
        json.loads(
            body, object_pairs_hook=_check_object_keys, parse_constant=_reject_constant
        )
    except (ValueError, RecursionError) as error:
        raise RequestInvalid(
            f"the request body is not valid JSON: {str(error)[:200]}"
        ) from None


def _check_object_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    if len(pairs) > MOST_KEYS:
        raise ValueError(f"an object has more than {MOST_KEYS:,} keys")
    unique_pairs = dict(pairs)
    if len(unique_pairs) < len(pairs):
        times = Counter(key for key, _ in pairs)
        twice = next(key for key, count in times.items() if count > 1)
        raise ValueError(f"the key {twice[:60]!r} appears twice in an object")
    return unique_pairs


def _reject_constant(word: str) -> float:
    raise ValueError(f"{word} is not a valid JSON value")
