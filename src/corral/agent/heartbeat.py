"""Encoding of a heartbeat: each attempt is encoded separately, so that one that cannot
be encoded does not hold up the others."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any, Final, TypeVar

import msgspec

from corral.domain.bounds import HEARTBEAT_BYTES, SEEN_BYTES, SENTENCE_LETTERS, cut
from corral.domain.observed_state import Seen
from corral.wire.agent_messages import Heartbeat, encode

T = TypeVar("T")
CANNOT: Final = (ValueError, TypeError, OverflowError, RecursionError)


def encoded(beat: Heartbeat) -> tuple[bytes, tuple[str, ...]]:
    """Encode the heartbeat. Return the frame, and a sentence for each part that was
    left out of it."""
    frame = _try_encode(beat)
    if frame is not None and len(frame) <= HEARTBEAT_BYTES:
        return frame, ()
    left_out: list[str] = []
    fitted_attempts: list[Seen] = []
    room = HEARTBEAT_BYTES
    for attempt in beat.seen:
        fitted, size = _fit_attempt(attempt, min(SEEN_BYTES, room))
        fitted_attempts.append(fitted)
        room -= size
        if fitted != attempt:
            left_out.append(
                f"a part of the report of attempt {attempt.key[1]} of {attempt.key[0]}"
            )
    shortened_beat = msgspec.structs.replace(
        beat,
        seen=tuple(fitted_attempts),
        inventory=_encodable_part(beat.inventory, "the inventory", left_out),
        sample=_encodable_part(beat.sample, "the sensor values", left_out),
        content=_encodable_part(beat.content, "the kept content", left_out),
        signals=tuple(
            signal
            for signal in beat.signals
            if _encodable_part(signal, "a signal", left_out) is not None
        ),
    )
    return encode(shortened_beat), tuple(left_out)


def _fit_attempt(seen: Seen, most_bytes: int) -> tuple[Seen, int]:
    """Return a reduced copy of the attempt that encodes to at most `most_bytes`, with
    as many of its parts as fit. Return the encoded size too."""
    for attempt in _less_and_less(seen):
        frame = _try_encode(attempt)
        if frame is not None and len(frame) <= most_bytes:
            return attempt, len(frame)
    bare = Seen(key=seen.key, phase=seen.phase)
    return bare, len(encode(bare))


def _less_and_less(seen: Seen) -> Iterator[Seen]:
    """Yield the attempt in full, then copies with fewer and fewer of its parts. The
    exits of its ranks are dropped last."""
    yield seen
    seen = replace(seen, tails=())
    yield seen
    seen = replace(
        seen,
        progress=None,
        saves=tuple(save for save in seen.saves if _try_encode(save)),
    )
    yield seen
    seen = replace(seen, saves=(), trouble=cut(seen.trouble, SENTENCE_LETTERS))
    yield seen


def _encodable_part(part: T, name: str, left_out: list[str]) -> T | None:
    """Return the part if it can be encoded by itself; otherwise add its name to
    `left_out` and return None."""
    frame = _try_encode(part)
    if frame is not None and len(frame) <= SEEN_BYTES:
        return part
    left_out.append(name)
    return None


def _try_encode(part: Any) -> bytes | None:
    try:
        return encode(part)
    except CANNOT:
        return None
