"""A disk that forgets what was not synced: files rebuilt from a log of the child's
writes.

Content becomes durable by fsync of its file, a name by fsync of its directory. Of all
the rest a power cut keeps any part: whole writes in any order, or single sectors of
one.
"""

import random
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from tests.store.crash.check import Ack, read_acks

SECTOR = 512
RECORDING = [
    *("-xx", "-y", "-s", "100000"),
    *("-e", "trace=openat,pwrite64,write,fsync,fdatasync,ftruncate,unlink,link,linkat"),
]
_CALL = re.compile(r"^\d+ +(\w+)\((.*)\) += (\d+)(?:<(\S*)>)?$")
_HALF = re.compile(r"^(\d+) +(\w+\(.*) <unfinished \.\.\.>$")
_REST = re.compile(r"^(\d+) +<\.\.\. \w+ resumed>(.*)$")
_FILE = re.compile(r"^\d+<([^>]*)>")
_TEXT = re.compile(r'"((?:\\x[0-9a-f]{2})*)"')


@dataclass(frozen=True, slots=True, kw_only=True)
class Op:
    """One call that touched a file: open, write, sync, truncate, link, unlink."""

    kind: str
    path: str
    old_path: str = ""  # of a link
    offset: int = 0
    data: bytes = b""


def read_log(text: str) -> list[Op]:
    """The calls that succeeded, in the order in which they ended."""
    return [
        op for line in _whole_lines(text.splitlines()) if (op := _op(line)) is not None
    ]


def _whole_lines(lines: Iterable[str]) -> Iterator[str]:
    begun: dict[str, str] = {}
    for line in lines:
        if half := _HALF.match(line):
            begun[half[1]] = half[2]
        elif (rest := _REST.match(line)) and rest[1] in begun:
            yield f"{rest[1]} {begun.pop(rest[1])}{rest[2]}"
        else:
            yield line


def _op(line: str) -> Op | None:
    match = _CALL.match(line)
    if match is None:
        return None
    call, arguments, result = match[1], match[2], int(match[3])
    if call == "openat":
        return Op(kind="open", path=_bytes(match[4] or "").decode())
    text = _TEXT.search(arguments)
    if call in ("link", "linkat"):
        old, new = _TEXT.findall(arguments)
        return Op(kind="link", path=_bytes(new).decode(), old_path=_bytes(old).decode())
    if call == "unlink" and text:
        return Op(kind="unlink", path=_bytes(text[1]).decode())
    file = _FILE.match(arguments)
    if file is None:
        return None
    path = _bytes(file[1]).decode(errors="replace")
    if call in ("fsync", "fdatasync"):
        return Op(kind="sync", path=path)
    last = int(arguments.rsplit(",", 1)[1])
    if call == "ftruncate":
        return Op(kind="truncate", path=path, offset=last)
    data = _bytes(text[1])[:result] if text else b""
    return Op(
        kind="write", path=path, offset=last if call == "pwrite64" else -1, data=data
    )


def _bytes(text: str) -> bytes:
    return bytes.fromhex(text.replace("\\x", ""))


@dataclass(slots=True)
class Disk:
    """The files of one directory: what is durable, and what only the page cache
    knows."""

    directory: str
    durable: dict[str, bytes] = field(default_factory=dict)
    pending: dict[str, list[Op]] = field(default_factory=dict)
    names: set[str] = field(default_factory=set)  # as the running program sees them
    durable_names: set[str] = field(default_factory=set)
    said: bytes = b""

    def take(self, op: Op) -> None:
        if op.kind == "sync" and op.path == self.directory:
            self.durable_names = set(self.names)
        name = op.path.removeprefix(self.directory + "/")
        if name == "acks":
            self.said += op.data
        if not name.startswith("corral.db") or name.endswith("-shm"):
            return
        if op.kind == "open":
            self.names.add(name)
        elif op.kind == "link":  # nobody writes by the old name any more
            old = op.old_path.removeprefix(self.directory + "/")
            self.names.add(name)
            self.durable[name] = self.durable.get(old, b"")
            self.pending[name] = list(self.pending.get(old, []))
        elif op.kind == "unlink":
            self.names.discard(name)
        elif op.kind == "sync":
            self.durable[name] = _applied(
                self.durable.get(name, b""), self.pending.pop(name, [])
            )
        else:
            self.pending.setdefault(name, []).append(op)

    @property
    def acks(self) -> list[Ack]:
        return read_acks(self.said.decode())

    def cut(self, chance: random.Random, into: Path) -> None:
        """What a power cut now could leave, written into the directory."""
        keep = chance.choice(["nothing", "everything", "some", "some"])
        for name in self.names | self.durable_names:
            unsure = (name in self.names) != (name in self.durable_names)
            if unsure and chance.random() < 0.5:
                continue
            left = [
                part
                for op in self.pending.get(name, [])
                for part in _kept(op, keep, chance)
            ]
            (into / name).write_bytes(_applied(self.durable.get(name, b""), left))


def _kept(op: Op, keep: str, chance: random.Random) -> list[Op]:
    if keep == "everything":
        return [op]
    if keep == "nothing" or chance.random() < 0.5:
        return []
    if op.kind != "write" or chance.random() < 0.5:
        return [op]
    pieces = range(0, len(op.data), SECTOR)
    return [
        Op(
            kind="write",
            path=op.path,
            offset=op.offset + at,
            data=op.data[at : at + SECTOR],
        )
        for at in pieces
        if chance.random() < 0.5
    ]


def _applied(content: bytes, ops: list[Op]) -> bytes:
    now = bytearray(content)
    for op in ops:
        if op.kind == "truncate":
            now = now[: op.offset].ljust(op.offset, b"\x00")
        else:
            now = now.ljust(op.offset, b"\x00")
            now[op.offset : op.offset + len(op.data)] = op.data
    return bytes(now)
