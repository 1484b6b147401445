"""A block with some minutes of one time series. It is stored as columns of 32-bit
floats, whose bytes are shuffled and compressed.

Bytes of equal significance are stored together, so that values that hardly change
compress to almost nothing.
"""

import json
import struct
import zlib
from array import array
from collections.abc import Mapping
from dataclasses import dataclass, field
from math import nan
from typing import Final

from corral.domain.time_series import Curve

LEVEL: Final = 1
PART_ROWS: Final = 6
_HEAD: Final = struct.Struct("<IId")  # bytes of the names, moments, the first moment


@dataclass(slots=True)
class Block:
    """Rows of one time series with the same fields, one row for each time.

    Rows are stored in arrays of PART_ROWS rows, all of one size, because thousands of
    blocks are open at once. If each block were one array that is reallocated as it
    grows, memory would be fragmented.
    """

    fields: tuple[str, ...]
    times: "array[float]" = field(default_factory=lambda: array("d"))
    parts: "list[array[float]]" = field(default_factory=list)

    def add(self, at: float, values: Mapping[str, float | None]) -> None:
        width, row = len(self.fields), len(self.times) % PART_ROWS
        if row == 0:
            self.parts.append(array("f", bytes(4 * PART_ROWS * width)))
        encoded_row = array(
            "f", (nan if value is None else value for value in values.values())
        )
        self.parts[-1][row * width : (row + 1) * width] = encoded_row
        self.times.append(at)

    @property
    def rows(self) -> "array[float]":
        """Return all rows, one after the other, as one array."""
        all_rows = array("f")
        for row_chunk in self.parts:
            all_rows.extend(row_chunk)
        return all_rows[: len(self.times) * len(self.fields)]

    def copy(self) -> "Block":
        """Return a copy of the block. It shares the full arrays of rows, because these
        no longer change."""
        return Block(self.fields, self.times[:], [*self.parts[:-1], self.parts[-1][:]])

    @property
    def curve(self) -> Curve:
        width, rows = len(self.fields), self.rows
        columns = {
            name: rows[field_index::width]
            for field_index, name in enumerate(self.fields)
        }
        return Curve(times=self.times, fields=columns)


def block_of(curve: Curve) -> Block:
    block = Block(tuple(curve.fields))
    for sample_index, time in enumerate(curve.times):
        block.add(time, {name: row[sample_index] for name, row in curve.fields.items()})
    return block


def packed(block: Block) -> bytes:
    """Return the compressed block. Times are kept relative to the first time, with a
    precision of some milliseconds."""
    width, first_time, rows = len(block.fields), block.times[0], block.rows
    names = json.dumps(block.fields).encode()
    columns = array("f", (time - first_time for time in block.times))
    for field_index in range(width):
        columns.extend(rows[field_index::width])
    raw = columns.tobytes()
    shuffled = b"".join(raw[byte::4] for byte in range(4))
    return _HEAD.pack(len(names), len(block.times), first_time) + zlib.compress(
        names + shuffled, LEVEL
    )


def unpacked(data: bytes) -> Curve:
    """Decode a packed block. Raises: ValueError if the data is not a valid block."""
    try:
        names_bytes, moments, first_time = _HEAD.unpack_from(data)
        raw = zlib.decompress(data[_HEAD.size :])
        names = json.loads(raw[:names_bytes])
        shuffled = raw[names_bytes:]
        column_bytes = bytearray(len(shuffled))
        for byte in range(4):
            column_bytes[byte::4] = shuffled[
                byte * len(shuffled) // 4 : (byte + 1) * len(shuffled) // 4
            ]
        columns = array("f", bytes(column_bytes))
        if len(columns) != moments * (len(names) + 1):
            raise ValueError("the data is cut off")
    except (struct.error, zlib.error, ValueError, TypeError) as error:
        raise ValueError(f"not a valid block of a time series: {error}") from error
    column_slices = [
        columns[column_index * moments : (column_index + 1) * moments]
        for column_index in range(len(names) + 1)
    ]
    times = [first_time + offset for offset in column_slices[0]]
    return Curve(times=times, fields=dict(zip(names, column_slices[1:], strict=True)))
