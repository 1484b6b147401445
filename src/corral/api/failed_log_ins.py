"""Failed log-ins in the audit log. They are summed by address, so that a flood cannot
fill the store."""

import asyncio
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from corral.domain.errors import CorralError
from corral.domain.users import NOBODY, AuditEntry, SpeakerKind
from corral.ports.clock import Clock
from corral.ports.log import HeadLogger
from corral.ports.store import Store

log = HeadLogger("corral.api")
WHAT: Final = "login.fail"
# after which the first failures after a quiet time are written
FIRST_SECONDS: Final = 1.0
NEXT_SECONDS: Final = 60.0  # between two writes
ENTRIES_MOST: Final = 20  # of one write; the rest is one entry more
KINDS_MOST: Final = 10_000  # counted separately until the next write
MANY: Final = "many addresses"


class LogInFailure(NamedTuple):
    """Source, error code and subject of failures that are counted together."""

    source: str
    code: str
    on: str


@dataclass(slots=True, kw_only=True)
class FailedLogIns:
    """Counts of failures since the last write. At most 21 entries are written per
    minute."""

    store: Store
    clock: Clock
    _counts: dict[LogInFailure, int] = field(default_factory=dict)
    _wrote_at: float = float("-inf")
    _writing: asyncio.Task[None] | None = None

    def note(self, source: str, code: str, on: str = "") -> None:
        """Count one failure. `source` is the address, `code` the error; `on` names the
        token or user of the failed request."""
        kind = LogInFailure(source, code, on)
        if kind not in self._counts and len(self._counts) >= KINDS_MOST:
            kind = LogInFailure(MANY, code, "")
        self._counts[kind] = self._counts.get(kind, 0) + 1
        if self._writing is None or self._writing.done():
            self._writing = asyncio.create_task(self._write_on())

    async def _write_on(self) -> None:
        while self._counts:
            elapsed_seconds = self.clock.monotonic() - self._wrote_at
            await asyncio.sleep(
                FIRST_SECONDS
                if elapsed_seconds >= NEXT_SECONDS
                else NEXT_SECONDS - elapsed_seconds
            )
            self._wrote_at = self.clock.monotonic()
            await self.write()

    async def write(self) -> None:
        """Append the counts to the audit log. Counts that cannot be written are kept
        for the next write."""
        counts, self._counts = self._counts, {}
        now = self.clock.wall()
        for kind, count in _merge_rare_failures(counts).items():
            entry = AuditEntry(
                at=now,
                by=NOBODY,
                token=None,
                what=WHAT,
                on=kind.on,
                accepted=False,
                source=kind.source,
                kind=SpeakerKind.NOBODY,
                code=kind.code,
                count=count,
            )
            try:
                await self.store.record(entry)
            except CorralError as error:
                log.error("not_written_down", what=WHAT, error=error.message)
                self._counts[kind] = self._counts.get(kind, 0) + count


def _merge_rare_failures(counts: dict[LogInFailure, int]) -> dict[LogInFailure, int]:
    """Return the counts of the most frequent kinds of failures unchanged, and those of
    all other kinds summed as one kind without an address."""
    ordered = sorted(counts, key=lambda kind: -counts[kind])
    summed = {kind: counts[kind] for kind in ordered[:ENTRIES_MOST]}
    if rest := ordered[ENTRIES_MOST:]:
        codes = {kind.code for kind in rest}
        code = codes.pop() if len(codes) == 1 else "unauthorised"
        merged_failure = LogInFailure(MANY, code, "")
        summed[merged_failure] = summed.get(merged_failure, 0) + sum(
            counts[kind] for kind in rest
        )
    return summed
