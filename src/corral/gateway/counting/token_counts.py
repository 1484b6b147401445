"""Counts of tokens that engines report under `usage`."""

import re
from typing import Final, NamedTuple

_USAGE_BYTES: Final = 1024
_COUNT: Final = re.compile(
    rb'"(prompt_tokens|input_tokens|completion_tokens|output_tokens|cached_tokens'
    rb'|cache_read_input_tokens)"\s*:\s*(\d{1,12})'
)


class TokenCounts(NamedTuple):
    """Tokens of one request; `cached` are part of `prompt`."""

    prompt: int
    cached: int
    output: int


def read_usage(tail: bytes) -> TokenCounts | None:
    """Return the counts of the last `usage` in the end of an answer; None without
    one."""
    at = tail.rfind(b'"usage"')
    if at < 0:
        return None
    prompt, cached, output = 0, 0, 0
    is_there = False
    for name, digits in _COUNT.findall(tail, at, at + _USAGE_BYTES):
        is_there = True
        if name in (b"prompt_tokens", b"input_tokens"):
            prompt = int(digits)
        elif name in (b"completion_tokens", b"output_tokens"):
            output = int(digits)
        else:
            cached = int(digits)
    # counts that contradict each other are cut to what is possible
    return TokenCounts(prompt, min(cached, prompt), output) if is_there else None
