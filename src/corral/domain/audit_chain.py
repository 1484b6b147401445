"""Hash chain of the audit log: how entries are linked, and how all of them are
verified.

The link of an entry is a SHA-256 hash over the entry and the link before it. Its seal
is the HMAC of the link by a key of the cluster. A link stands for all entries before
it, so a seal by a present key also proves entries that earlier keys have sealed.
"""

import hashlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final

BEGIN: Final = hashlib.sha256(b"corral-audit-1")


@dataclass(frozen=True, slots=True, kw_only=True)
class ChainEntry:
    """One row of the audit log as it is stored. `link` is its hash in the chain; it is
    None in rows from before the chain existed. `seal` is the HMAC of the link.

    Args:
        intact: Whether the columns of the row agree with its record.
    """

    number: int
    record: str
    link: str | None
    seal: str | None
    intact: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Anchor:
    """Number and hash of an entry of the audit log, as noted outside of the cluster. A
    log that was replaced or cut off before this entry no longer contains it."""

    number: int
    link: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ChainReport:
    """Result of verifying the audit log. `number` and `link` are those of the last
    valid entry. `fault` describes the first invalid entry; "" if all are valid."""

    entries: int
    unchained: int
    number: int
    link: str
    fault: str = ""


class UnchainedDigest:
    """Digest over the entries from before the chain. The first link of the chain is
    computed from it."""

    def __init__(self) -> None:
        self._digest = BEGIN.copy()

    def add(self, number: int, record: str) -> None:
        self._digest.update(f"{number}\n{record}\n".encode())

    def link(self) -> str:
        return self._digest.hexdigest()


def next_link(before: str, number: int, record: str) -> str:
    """Return the link of an entry, computed from the link before it."""
    return hashlib.sha256(f"{before}\n{number}\n{record}".encode()).hexdigest()


def walk_chain(
    entries: Iterable[ChainEntry],
    check_seal: Callable[[str, str], bool | None],
    anchor: Anchor | None = None,
) -> ChainReport:
    """Verify all entries, the oldest first, up to the first fault.

    Args:
        check_seal: Returns whether a link has this seal; None if the key of the seal is
            no longer present.
        anchor: A link that the log must still hold.
    """
    walk = _Walk(check_seal, anchor)
    for entry in entries:
        if walk.fault:
            break
        walk.take(entry)
    walk.end()
    return ChainReport(
        entries=walk.entries,
        unchained=walk.unchained,
        number=walk.number,
        link=walk.link,
        fault=walk.fault,
    )


class _Walk:
    def __init__(
        self, check_seal: Callable[[str, str], bool | None], anchor: Anchor | None
    ) -> None:
        self._check_seal = check_seal
        self._anchor = anchor
        self._before = UnchainedDigest()
        # the newest entry that a present key has sealed, or that has no link
        self._proven = 0
        self.entries = 0
        self.unchained = 0
        self.number = 0
        self.link = ""
        self.fault = ""

    def take(self, entry: ChainEntry) -> None:
        self.fault = (
            self._unchained(entry) if entry.link is None else self._check_link(entry)
        )
        if self.fault:
            return
        self.entries += 1
        self.number = entry.number
        noted = self._anchor
        if (
            noted is not None
            and noted.number == entry.number
            and noted.link != entry.link
        ):
            self.fault = (
                f"the link of entry {entry.number} differs from that of --anchor"
            )

    def _unchained(self, entry: ChainEntry) -> str:
        if self.link:
            return (
                f"entry {entry.number} has no link of the hash chain, although entry "
                f"{self.number} before it has one"
            )
        self._before.add(entry.number, entry.record)
        self._proven = entry.number
        self.unchained += 1
        return ""

    def _check_link(self, entry: ChainEntry) -> str:
        previous_link = self.link or self._before.link()
        if entry.number <= self.number:
            return f"entry {entry.number} is duplicated or out of order"
        if entry.number > self.number + 1:
            return _missing_text(self.number + 1, entry.number - 1)
        link = next_link(previous_link, entry.number, entry.record)
        if link != entry.link or not entry.intact:
            return (
                f"entry {entry.number}, or an entry before it, was changed after it was "
                "written"
            )
        sealed = None if entry.seal is None else self._check_seal(link, entry.seal)
        if sealed is False:
            return (
                f"the seal of entry {entry.number} was not made with this cluster's key"
            )
        if sealed:
            self._proven = entry.number
        self.link = link
        return ""

    def end(self) -> None:
        anchor = self._anchor
        if self.fault:
            return
        if not self.entries:
            self.fault = "the log is empty: entry 1 is missing"
        elif anchor is not None and anchor.number > self.number:
            self.fault = _missing_text(self.number + 1, anchor.number)
        elif not self.link:
            self.fault = (
                f"entry {self.number} has no link of the hash chain, and neither has any "
                "entry before it"
            )
        elif self._proven != self.number:
            self.fault = (
                f"entry {self._proven + 1} and the entries after it are not sealed by a "
                "current key"
            )


def _missing_text(first: int, last: int) -> str:
    return (
        f"entry {first} is missing"
        if first == last
        else f"entries {first} to {last} are missing"
    )
