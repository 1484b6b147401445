"""A block: some minutes of one key, as columns of 32-bit floats, shuffled and deflated.

Bytes of alike weight lie together, so that what hardly changes shrinks to next to nothing.
"""

import json
import struct
import zlib
from array import array
from collections.abc import Mapping
from dataclasses import dataclass, field
from math import nan
from typing import Final

from corral.domain.series import Curve

LEVEL: Final = 1
_HEAD: Final = struct.Struct("<IId")  # bytes of the names, moments, the first moment


@dataclass(slots=True)
class Block:
    """Rows of the same fields, one a moment."""

    fields: tuple[str, ...]
    times: "array[float]" = field(default_factory=lambda: array("d"))
    rows: "array[float]" = field(default_factory=lambda: array("f"))

    def add(self, at: float, values: Mapping[str, float | None]) -> None:
        self.times.append(at)
        self.rows.extend(nan if value is None else value for value in values.values())

    def copy(self) -> "Block":
        return Block(self.fields, self.times[:], self.rows[:])

    @property
    def curve(self) -> Curve:
        width = len(self.fields)
        columns = {name: self.rows[at::width] for at, name in enumerate(self.fields)}
        return Curve(times=self.times, fields=columns)


def block_of(curve: Curve) -> Block:
    block = Block(tuple(curve.fields))
    for at, time in enumerate(curve.times):
        block.add(time, {name: row[at] for name, row in curve.fields.items()})
    return block


def packed(block: Block) -> bytes:
    """Moments are kept to some milliseconds from the first."""
    width, first = len(block.fields), block.times[0]
    names = json.dumps(block.fields).encode()
    columns = array("f", (time - first for time in block.times))
    for at in range(width):
        columns.extend(block.rows[at::width])
    raw = columns.tobytes()
    shuffled = b"".join(raw[byte::4] for byte in range(4))
    return _HEAD.pack(len(names), len(block.times), first) + zlib.compress(names + shuffled, LEVEL)


def unpacked(data: bytes) -> Curve:
    """Raises: ValueError when it is none."""
    try:
        names_bytes, moments, first = _HEAD.unpack_from(data)
        raw = zlib.decompress(data[_HEAD.size :])
        names = json.loads(raw[:names_bytes])
        shuffled = raw[names_bytes:]
        whole = bytearray(len(shuffled))
        for byte in range(4):
            whole[byte::4] = shuffled[byte * len(shuffled) // 4 : (byte + 1) * len(shuffled) // 4]
        columns = array("f", bytes(whole))
        if len(columns) != moments * (len(names) + 1):
            raise ValueError("it is cut off")
    except (struct.error, zlib.error, ValueError, TypeError) as error:
        raise ValueError(f"no block of a curve: {error}") from error
    parts = [columns[at * moments : (at + 1) * moments] for at in range(len(names) + 1)]
    times = [first + offset for offset in parts[0]]
    return Curve(times=times, fields=dict(zip(names, parts[1:], strict=True)))
