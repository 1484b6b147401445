"""Event files of TensorBoard: a mark that hides what an earlier attempt wrote after the
step from which this attempt resumes.

The record format is that of TFRecord files; the messages are those of
tensorboard/compat/proto/event.proto. It is written here so that a script that does not
use TensorBoard does not import it.
"""

import os
import struct
from pathlib import Path
from typing import Final

PREFIX: Final = "events.out.tfevents."
_POLYNOMIAL: Final = 0x82F63B78  # CRC-32C, reflected
_MASK_DELTA: Final = 0xA282EAD8
_UINT32: Final = 0xFFFFFFFF
_WALL_TIME, _STEP, _FILE_VERSION, _SESSION_LOG = 0x09, 0x10, 0x1A, 0x3A
_SESSION_START: Final = b"\x08\x01"  # status = START


def hide_from_step(folder: Path, step: int, *, now: float, name: str) -> int:
    """Add a mark to each run of TensorBoard in the folder and below: its points from
    `step` on are not shown any more, except for those that are written later.

    Args:
        now: the wall clock in seconds.
        name: the end of the files' names, which no other file has.

    Returns: the number of runs.
    Raises: OSError.
    """
    runs = [
        Path(path)
        for path, _, files in os.walk(folder)
        if any(file.startswith(PREFIX) for file in files)
    ]
    version = _event(now, step, _FILE_VERSION, b"brain.Event:2")
    start = _event(now, step, _SESSION_LOG, _SESSION_START)
    for run in runs:
        # the files of a run are read in the order of their names
        file = run / f"{PREFIX}{int(now):010d}.corral.{name}"
        file.write_bytes(_record(version) + _record(start))
    return len(runs)


def _event(now: float, step: int, field: int, value: bytes) -> bytes:
    return (
        bytes([_WALL_TIME])
        + struct.pack("<d", now)
        + bytes([_STEP])
        + _varint(step)
        + bytes([field])
        + _varint(len(value))
        + value
    )


def _record(data: bytes) -> bytes:
    length = struct.pack("<Q", len(data))
    return length + _masked_crc(length) + data + _masked_crc(data)


def _varint(number: int) -> bytes:
    parts = bytearray()
    while number > 0x7F:
        parts.append(number & 0x7F | 0x80)
        number >>= 7
    parts.append(number)
    return bytes(parts)


def _masked_crc(data: bytes) -> bytes:
    crc = _UINT32
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = (crc >> 1) ^ (_POLYNOMIAL if crc & 1 else 0)
    crc ^= _UINT32
    rotated = (crc >> 15 | crc << 17) & _UINT32
    return struct.pack("<I", (rotated + _MASK_DELTA) & _UINT32)
