"""Frames with which an agent sends outputs. Each frame is one byte for its kind, then
the content.

DATA carries a piece of a listing (JSON) or of a tar stream. END is the last frame and
carries an OutputsEnd. A connection that closes without END was cut short.
"""

from typing import Final, Literal

import msgspec

from corral.domain.outputs import OutputListing

DATA: Final = b"d"
END: Final = b"e"
MOST_SENTENCE: Final = 500
Outcome = Literal["sent", "absent", "refused"]


class OutputsEnd(msgspec.Struct, frozen=True):
    """End of a transfer. `absent`: the node has no such file, or no longer stores the
    outputs of the attempt."""

    outcome: Outcome
    why: str = ""


def encode_listing(listing: OutputListing) -> bytes:
    return msgspec.json.encode(listing)


def decode_listing(text: bytes) -> OutputListing:
    """Decode a listing of outputs.

    Raises: ValueError.
    """
    return msgspec.json.decode(text, type=OutputListing)


def encode_end(outcome: Outcome, why: str = "") -> bytes:
    return END + msgspec.json.encode(OutputsEnd(outcome, why[:MOST_SENTENCE]))


def decode_end(frame: bytes) -> OutputsEnd:
    """Decode the last frame of a transfer.

    Raises: ValueError.
    """
    outputs_end = msgspec.json.decode(frame[1:], type=OutputsEnd)
    return OutputsEnd(outputs_end.outcome, outputs_end.why[:MOST_SENTENCE])
