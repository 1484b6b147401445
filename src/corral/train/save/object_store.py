"""The saves of a job in an object store.

<root>/job                                names the job that the prefix belongs to
<root>/log/<sequence>                     the log that publishes saves (save_log.py)
<root>/attempt-<n>/step-<k>[.<m>]/        the files of a save, with its manifest.json

Every save gets a prefix of its own: a delayed upload never changes a published save.
What the log does not name is not read; the next attempt removes it.
"""

import re
import secrets
from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Final

from corral.domain.keep_rule import (
    KeepRule,
    Metrics,
    SaveKey,
    reasons_to_keep,
    save_key,
)
from corral.domain.store_url import StoreUrl
from corral.store.object_client import StoreUnavailable
from corral.train.save.checkpoint_dir import OWNER, WHY, RecordedSave
from corral.train.save.checkpoint_store import SaveSlot, SaveTarget
from corral.train.save.manifest import MANIFEST, Broken, decode
from corral.train.save.object_target import ObjectTarget, StoreLimits, client_of
from corral.train.save.save_log import LogEntry, LogKind, SaveLog, published
from corral.train.save.saver import say

_ATTEMPT: Final = re.compile(r"attempt-[0-9]+")
_FOLDER: Final = re.compile(r"(attempt-([0-9]+)/step-[0-9]+(?:\.([0-9]+)-[0-9]+)?)/")


@dataclass(slots=True, kw_only=True)
class ObjectShelf:
    """The saves of a job below a prefix of an object store, as one attempt sees them.

    `attempt` 0: no head counts the attempts, so opening takes the next one.
    """

    root: StoreUrl
    job: str
    attempt: int
    limits: StoreLimits = field(default_factory=StoreLimits)
    _writer: str = field(default_factory=lambda: secrets.token_hex(8))
    _claim: int = 0  # sequence number of this process's claim
    _is_first: bool = True  # process of its attempt
    _begun: list[int] = field(default_factory=list)  # steps of this process
    _log: SaveLog | None = None
    _uncertain: set[StoreUrl] = field(default_factory=set)

    def __getstate__(self) -> tuple[object, ...]:
        return (self.root, self.job, self.attempt, self.limits)

    def __setstate__(self, state: tuple[StoreUrl, str, int, StoreLimits]) -> None:
        root, job, attempt, limits = state
        self.__init__(root=root, job=job, attempt=attempt, limits=limits)  # type: ignore[misc]

    @property
    def log(self) -> SaveLog:
        """Return the log of this job's saves."""
        if self._log is None:
            self._log = log_of(self.root, self.limits)
        return self._log

    def open(self) -> None:
        """Claim the saves for this process, which fences all older attempts, and remove
        what their incomplete saves left.

        Raises: Fenced, StoreRefused, StoreUnavailable.
        """
        before, claim = self.log.claim(self.attempt or None, self._writer)
        self.attempt, self._claim = claim.attempt, claim.sequence
        self._is_first = before.attempt != claim.attempt
        self._remove_leftovers()

    def begin(self, step: int) -> ObjectTarget:
        """Return a new prefix for the save of a step.

        Raises: Fenced, StoreRefused, StoreUnavailable.
        """
        self.log.check_not_fenced(self._entry(step, "", ""))
        name = f"attempt-{self.attempt}/step-{step}"
        if not self._is_first or step in self._begun:
            name = f"{name}.{self._claim}-{len(self._begun) + 1}"
        self._begun.append(step)
        return ObjectTarget(url=self.root / name, limits=self.limits)

    def publish(self, step: int, target: SaveTarget, manifest: bytes) -> StoreUrl:
        """Append the save to the log: from then on it is complete.

        Raises: Fenced, StoreRefused, StoreUnavailable.
        """
        assert isinstance(target, ObjectTarget)
        folder = target.url.text.removeprefix(f"{self.root}/")
        self._uncertain.add(target.url)
        self.log.append(self._entry(step, folder, manifest.decode()))
        self._uncertain.discard(target.url)
        try:  # a copy, so that the prefix is a whole save for every reader
            target.write(MANIFEST, manifest)
        except StoreUnavailable as error:
            say(f"the manifest of step {step} is in the log only: {error.message}")
        return target.url

    def abandon(self, step: int, target: SaveTarget | None) -> None:
        """Remove the files that a failed save has left. They stay if the store may still
        publish the save; the next attempt then removes or reads them."""
        if isinstance(target, ObjectTarget) and target.url not in self._uncertain:
            try:
                self._delete_below(target.url)
            except Exception as error:
                say(f"the files of the failed save of step {step} are left: {error}")

    def saves(self) -> list[SaveSlot]:
        """Return the published saves, newest first.

        Raises: StoreRefused, StoreUnavailable.
        """
        return [self._slot(entry) for entry in self._published()]

    def prune(
        self,
        committed: Collection[SaveKey],
        *,
        rule: KeepRule,
        pinned: Collection[SaveKey] = (),
    ) -> list[SaveSlot]:
        """Remove the saves that the rule does not keep, and return them, as a directory
        of saves does. Nothing is removed once a newer attempt has begun.

        Raises: Fenced, StoreRefused, StoreUnavailable.
        """
        entries = self._published()
        recorded = [
            _recorded_save(entry, pinned)
            for entry in entries
            if (entry.attempt, entry.step) in committed
        ]
        last = max(1, rule.last)
        if len(recorded) < last:
            return []
        oldest_of_last = save_key(recorded[last - 1])
        kept_keys = reasons_to_keep(recorded, rule).keys() | set(pinned)
        doomed = [
            entry
            for entry in entries
            if (entry.attempt, entry.step) < oldest_of_last
            and (entry.attempt, entry.step) not in kept_keys
        ]
        if doomed:
            self.log.check_not_fenced(self._entry(0, "", ""))
        for entry in doomed:
            self.remove(entry)
        return [self._slot(entry) for entry in doomed]

    def remove(self, entry: LogEntry) -> None:
        """Remove a published save: first its entry in the log, then its files.

        Raises: StoreRefused, StoreUnavailable.
        """
        self.log.withdraw(entry, LogKind.REMOVED)
        self._delete_below(self.root / entry.folder)

    def put_aside(self, url: StoreUrl, why: str) -> None:
        """Quarantine a save: its files stay for inspection, and it is never read again.

        Raises: StoreRefused, StoreUnavailable.
        """
        for entry in self._published():
            if self.root / entry.folder == url:
                self.log.withdraw(entry, LogKind.QUARANTINED, why)
        client = client_of(self.root, self.limits)
        client.put(f"{url.key}/{WHY}", f"{why}\n".encode())
        client.delete([f"{url.key}/{MANIFEST}"])

    def _entry(self, step: int, folder: str, manifest: str) -> LogEntry:
        return LogEntry(
            kind=LogKind.SAVE,
            attempt=self.attempt,
            writer=self._writer,
            step=step,
            folder=folder,
            manifest=manifest,
        )

    def _published(self) -> list[LogEntry]:
        """Return the published saves, newest first. Of a step that an attempt saved
        twice, only the second."""
        newest: dict[SaveKey, LogEntry] = {}
        for entry in published(self.log.entries()):
            newest.setdefault((entry.attempt, entry.step), entry)
        return list(newest.values())

    def _slot(self, entry: LogEntry) -> SaveSlot:
        return SaveSlot(
            attempt=entry.attempt, step=entry.step, path=self.root / entry.folder
        )

    def _remove_leftovers(self) -> None:
        """Remove the files of saves that older writers did not publish. They cannot
        publish them any more."""
        named = {
            entry.folder
            for entry in self.log.entries()
            if entry.kind in (LogKind.SAVE, LogKind.QUARANTINED)
        }
        client = client_of(self.root, self.limits)
        above = f"{self.root.key}/".lstrip("/")
        bound = (self.attempt, 0 if self._is_first else self._claim)
        doomed = []
        for name in client.folders(above):
            if not _ATTEMPT.fullmatch(name):
                continue
            for stored in client.objects(f"{above}{name}/"):
                match = _FOLDER.match(stored.key.removeprefix(above))
                if match is None or match[1] in named:
                    continue
                if (int(match[2]), int(match[3] or 0)) < bound:
                    doomed.append(stored.key)
        client.delete(doomed)

    def _delete_below(self, url: StoreUrl) -> None:
        """Delete the files of a save, its manifest first."""
        client = client_of(url, self.limits)
        client.delete([f"{url.key}/{MANIFEST}"])
        client.delete([stored.key for stored in client.objects(f"{url.key}/")])


def log_of(root: StoreUrl, limits: StoreLimits) -> SaveLog:
    """Return the log of the saves below this root."""
    return SaveLog(client=client_of(root, limits), prefix=root.key)


def claim_prefix(url: StoreUrl, job: str, limits: StoreLimits) -> StoreUrl:
    """Return the root for the saves of this job: `url` itself, or a prefix below it if
    another job already owns `url`.

    Raises: StoreRefused, StoreUnavailable.
    """
    client = client_of(url, limits)
    key = f"{url.key}/{OWNER}".lstrip("/")
    if not job or client.create(key, job.encode()):
        return url
    owner = (client.get(key) or b"").decode(errors="replace").strip()
    return url if owner == job else url / job


def remove_saves(urls: Collection[StoreUrl]) -> None:
    """Remove published saves and their files.

    Raises: StoreRefused, StoreUnavailable.
    """
    for url in urls:
        root = url.parent.parent
        shelf = ObjectShelf(root=root, job="", attempt=0)
        for entry in published_entries(root, shelf.limits):
            if root / entry.folder == url:
                shelf.remove(entry)


def published_entries(root: StoreUrl, limits: StoreLimits) -> list[LogEntry]:
    """Return the published saves below this root, the newest first.

    Raises: StoreRefused, StoreUnavailable.
    """
    return published(log_of(root, limits).entries())


def _recorded_save(entry: LogEntry, pinned: Collection[SaveKey]) -> RecordedSave:
    """Return the save as the keep rule sees it."""
    at: float = 0.0
    metrics: Metrics = ()
    try:
        manifest = decode(entry.manifest.encode())
        at, metrics = manifest.saved_at, manifest.metrics
    except Broken:  # resuming quarantines it
        pass
    return RecordedSave(
        attempt=entry.attempt,
        step=entry.step,
        at=at,
        metrics=metrics,
        pinned=(entry.attempt, entry.step) in pinned,
    )
