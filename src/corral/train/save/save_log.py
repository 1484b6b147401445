"""Log of a job's saves in an object store. It decides which saves are published.

<root>/log/<sequence>     one entry: the claim of an attempt, or a published save

An entry is created at the next free sequence number, only if no object has that key yet.
So at most one writer gets it. A writer continues after its own newest entry. Once a
newer attempt has put its claim there, every later entry of the older attempt is refused:
without a lock, and whatever is delayed on the way.

Claims are never deleted, and neither is the newest entry: the key after a writer's newest
entry stays taken.
"""

import hashlib
import json
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field, replace
from enum import StrEnum
from typing import Final

from corral.store.object_client import ObjectClient
from corral.train.save.checkpoint_store import Fenced

DIGITS: Final = 12
READ_THREADS: Final = 8


class LogKind(StrEnum):
    """Kind of an entry. A removed save keeps its entry only while no later entry exists.
    A broken entry was changed after it was written."""

    CLAIM = "claim"
    SAVE = "save"
    REMOVED = "removed"
    QUARANTINED = "quarantined"
    BROKEN = "broken"


@dataclass(frozen=True, slots=True, kw_only=True)
class LogEntry:
    """One entry. `writer` distinguishes the processes of an attempt. Of a save, `folder`
    is the prefix of its files below the root, and `manifest` its manifest."""

    kind: LogKind
    attempt: int
    writer: str
    step: int = 0
    folder: str = ""
    manifest: str = ""
    reason: str = ""
    sequence: int = 0


@dataclass(slots=True, kw_only=True)
class SaveLog:
    """The log below `prefix`, which is the key of the job's root in its bucket.

    `newest`: sequence number of this writer's newest entry; 0 before its claim.
    """

    client: ObjectClient
    prefix: str
    newest: int = 0
    _cache: dict[str, tuple[str, LogEntry]] = field(default_factory=dict)

    def claim(self, attempt: int | None, writer: str) -> tuple[LogEntry, LogEntry]:
        """Append the claim of this writer, which fences all others. Return the entry
        before it, and the claim.

        Args:
            attempt: None for the attempt after the newest.

        Raises: Fenced if a newer attempt has begun; StoreRefused, StoreUnavailable.
        """
        while True:
            last = self.last()
            number = attempt if attempt is not None else last.attempt + 1
            _check_newest(last, number)
            entry = LogEntry(kind=LogKind.CLAIM, attempt=number, writer=writer)
            if self._create(last.sequence + 1, entry):
                self.newest = last.sequence + 1
                return last, replace(entry, sequence=self.newest)

    def append(self, entry: LogEntry) -> None:
        """Append an entry of this writer after its newest.

        Raises: Fenced if another writer has claimed the saves; StoreRefused,
        StoreUnavailable: the entry may then be there, now or later.
        """
        while not self._create(self.newest + 1, entry):
            taken = self.check_not_fenced(entry)
            if taken is not None:  # an entry of this writer that seemed to have failed
                self.newest = taken.sequence
        self.newest += 1

    def check_not_fenced(self, entry: LogEntry) -> LogEntry | None:
        """Return the entry after this writer's newest, if there is one.

        Raises: Fenced if it belongs to another writer.
        """
        following = self._read(self._key(self.newest + 1))
        if following is not None and following.writer != entry.writer:
            newer = following.attempt > entry.attempt
            by = f"attempt {following.attempt}" if newer else "a newer process of it"
            raise Fenced(
                f"{by} has begun, so attempt {entry.attempt} can no longer save"
            )
        return following

    def last(self) -> LogEntry:
        """Return the newest entry, with the attempt of the newest one that is not broken.
        Without entries, return one with sequence number 0."""
        newest = 0
        for stored in reversed(self.client.objects(f"{self.prefix}/log/".lstrip("/"))):
            entry = self._read(stored.key)
            if entry is None:
                continue
            newest = newest or entry.sequence
            if entry.kind != LogKind.BROKEN:
                return replace(entry, sequence=newest)
        return LogEntry(kind=LogKind.CLAIM, attempt=0, writer="", sequence=newest)

    def entries(self) -> list[LogEntry]:
        """Return all entries, oldest first. Only changed ones are read.

        Raises: StoreRefused, StoreUnavailable.
        """
        objects = self.client.objects(f"{self.prefix}/log/".lstrip("/"))
        changed = [
            stored
            for stored in objects
            if self._cache.get(stored.key, ("",))[0] != stored.version
        ]
        with ThreadPoolExecutor(READ_THREADS) as pool:
            read = list(pool.map(lambda stored: self._read(stored.key), changed))
        for stored, entry in zip(changed, read, strict=True):
            if entry is not None:
                self._cache[stored.key] = (stored.version, entry)
        return [
            self._cache[stored.key][1]
            for stored in objects
            if stored.key in self._cache
        ]

    def withdraw(self, entry: LogEntry, kind: LogKind, reason: str = "") -> None:
        """Mark a published save as removed or quarantined. A removed save has no entry
        any more, except if it is the newest.

        Raises: StoreRefused, StoreUnavailable.
        """
        is_newest = entry.sequence == self.last().sequence
        if kind == LogKind.REMOVED and not is_newest:
            self.client.delete([self._key(entry.sequence)])
            return
        changed = replace(entry, kind=kind, reason=reason)
        self.client.put(self._key(entry.sequence), _encode(changed))

    def _create(self, sequence: int, entry: LogEntry) -> bool:
        return self.client.create(self._key(sequence), _encode(entry))

    def _read(self, key: str) -> LogEntry | None:
        data = self.client.get(key)
        return None if data is None else _decode(data, key)

    def _key(self, sequence: int) -> str:
        return f"{self.prefix}/log/{sequence:0{DIGITS}d}".lstrip("/")


def published(entries: Sequence[LogEntry]) -> list[LogEntry]:
    """Return the entries of the published saves, the newest first."""
    return sorted(
        (entry for entry in entries if entry.kind == LogKind.SAVE),
        key=lambda entry: (entry.attempt, entry.step, entry.sequence),
        reverse=True,
    )


def _check_newest(last: LogEntry, attempt: int) -> None:
    if last.attempt > attempt:
        raise Fenced(
            f"attempt {last.attempt} has begun, so attempt {attempt} can no longer save"
        )


def _encode(entry: LogEntry) -> bytes:
    body = asdict(entry)
    del body["sequence"]
    text = json.dumps(body, sort_keys=True)
    return f"{text}\n{hashlib.sha256(text.encode()).hexdigest()}\n".encode()


def _decode(data: bytes, key: str) -> LogEntry:
    digits = key.rpartition("/")[2]
    sequence = int(digits) if digits.isdecimal() else 0
    text, _, seal = data.partition(b"\n")
    if hashlib.sha256(text).hexdigest().encode() + b"\n" != seal:
        return LogEntry(
            kind=LogKind.BROKEN,
            attempt=0,
            writer="",
            reason=f"the entry {key} of the save log was changed: its seal does not match",
            sequence=sequence,
        )
    body = json.loads(text)
    return LogEntry(**{**body, "kind": LogKind(body["kind"])}, sequence=sequence)
