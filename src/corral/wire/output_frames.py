"""Frames by which an agent sends outputs: one byte of kind, then bytes of content.

DATA carries a piece of a listing (JSON) or of a tar stream. END is the last frame, with
an OutputsEnd. A connection that ends without it was cut short.
"""

from typing import Final, Literal

import msgspec

from corral.domain.outputs import OutputListing

DATA: Final = b"d"
END: Final = b"e"
MOST_SENTENCE: Final = 500
Outcome = Literal["sent", "absent", "refused"]


class OutputsEnd(msgspec.Struct, frozen=True):
    """`absent`: the node has no such file, or keeps nothing of the attempt any more."""

    outcome: Outcome
    why: str = ""


def encode_listing(listing: OutputListing) -> bytes:
    return msgspec.json.encode(listing)


def decode_listing(text: bytes) -> OutputListing:
    """Raises: ValueError."""
    return msgspec.json.decode(text, type=OutputListing)


def encode_end(outcome: Outcome, why: str = "") -> bytes:
    return END + msgspec.json.encode(OutputsEnd(outcome, why[:MOST_SENTENCE]))


def decode_end(frame: bytes) -> OutputsEnd:
    """Raises: ValueError."""
    outputs_end = msgspec.json.decode(frame[1:], type=OutputsEnd)
    return OutputsEnd(outputs_end.outcome, outputs_end.why[:MOST_SENTENCE])
