"""One attempt as the agent knows it: from its shim's reports, or from its journal when
there is no shim."""

import asyncio
import json
import logging
import os
import socket
import time
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

from corral.agent import containment, journal
from corral.agent.clocks import since_boot
from corral.agent.failure_output import tails_of
from corral.agent.image.image_cache import digest_in_use
from corral.agent.processes import LocalProcess
from corral.agent.shim.file_names import SOCKET
from corral.agent.shim.state import (
    Record,
    ShimState,
    is_within,
    of_journal,
    progress_within,
)
from corral.agent.watching.rank_reports import (
    MOST_REPORTS,
    RankReport,
    phase_named,
    report_of,
)
from corral.domain.attempt import Exit, Save
from corral.domain.bounds import MOST_SAVES, SENTENCE_LETTERS, cut
from corral.domain.desired_state import Stop, TimeWarning
from corral.domain.hang import StallPhase
from corral.domain.keep_rule import Metrics, SaveKey
from corral.domain.observed_state import AttemptKey, Pace, Phase, Progress, Scalar, Seen
from corral.domain.trouble_kind import TroubleKind
from corral.wire.shim_spec import ShimSpec
from corral.wire.signals import To

BIRTH_LOOKS: Final = 200  # 2 s
LINE_BYTES: Final = 64 * 1024 * 1024
# time for which leftovers of a killed shim are killed before a report
GONE_SECONDS: Final = 60.0
log = logging.getLogger(__name__)


def connect_shim(folder: Path) -> socket.socket | None:
    """Return a connection to the attempt's shim, or None when no shim serves the
    folder."""
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        directory = os.open(folder, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            connection.connect(f"/proc/self/fd/{directory}/{SOCKET}")
        finally:
            os.close(directory)
    except OSError:
        connection.close()
        return None
    connection.setblocking(False)
    return connection


@dataclass(slots=True, kw_only=True)
class Supervised:
    """An attempt that the agent supervises. `on_change` is called whenever `seen` may
    have changed."""

    key: AttemptKey
    folder: Path
    on_change: Callable[[], None]
    wall: Callable[[], float]
    refusal: str = ""
    refusal_is_infra: bool = True
    refusal_of: str = ""
    known: bool = False  # its state has been received or read at least once
    # what ranks without steps report themselves
    reports: dict[int, RankReport] = field(default_factory=dict)
    _image: str | None = None  # its digest, once it has been looked for
    _state: Record = field(default_factory=lambda: ShimState().message)
    _writer: asyncio.StreamWriter | None = None
    _following: asyncio.Task[None] | None = None
    _stop: Record | None = None
    _stop_until: float = float("inf")
    _notice: Record | None = None
    _committed: frozenset[int] = frozenset()
    _pinned: frozenset[SaveKey] = frozenset()
    # made once for each change: every beat asks for all of them
    _seen: Seen | None = None

    @property
    def is_over(self) -> bool:
        return bool(self.refusal) or self._state["phase"] == "ended"

    @property
    def seen(self) -> Seen:
        if self._seen is None:
            self._seen = self._look()
        if self._seen.phase not in (Phase.UP, Phase.STOPPING):
            return self._seen
        return replace(
            self._seen, ran_seconds=_ran_seconds(self._state["started_since_boot"])
        )

    def _look(self) -> Seen:
        if self.refusal:
            return Seen(
                key=self.key,
                phase=Phase.REFUSED,
                trouble=cut(self.refusal, SENTENCE_LETTERS),
                trouble_is_infra=self.refusal_is_infra,
                trouble_of=self.refusal_of,
            )
        state = self._state
        phase = Phase(state["phase"])
        if phase in (Phase.STARTING, Phase.UP) and self._stop is not None:
            phase = Phase.STOPPING
        exits = tuple(_exit_of(exit_fields) for exit_fields in state["exits"])
        if self._image is None and phase != Phase.STARTING:
            self._image = digest_in_use(self.folder)
        return Seen(
            key=self.key,
            phase=phase,
            exits=exits,
            started_at=state["started_at"],
            ran_seconds=_ran_seconds(state["started_since_boot"]),
            progress=_progress_of(state["progress"]),
            saves=tuple(self._saves()),
            trouble=cut(state["trouble"], SENTENCE_LETTERS),
            trouble_is_infra=state["infra"],
            # a shim of an older version does not say
            trouble_of=state.get("trouble_of", ""),
            trouble_kind=TroubleKind(state.get("trouble_kind", "")),
            dropped=state.get("dropped", 0),
            waits_for_input=state.get("waits_for_input"),
            tails=tails_of(self.folder / "logs", exits),
            image=self._image or "",
        )

    def _changed(self) -> None:
        self._seen = None
        self.on_change()

    def _saves(self) -> list[Save]:
        """Return the saves that the head has not recorded. They are checked here,
        because an older shim checks no bounds."""
        job, attempt = self.key
        return [
            Save(job=job, **save | {"metrics": _pairs_of(save.get("metrics", ()))})
            for save in self._state["saves"][:MOST_SAVES]
            if is_within(save)
            and (
                save["quarantined"]
                or save["attempt"] != attempt
                or save["step"] not in self._committed
            )
        ]

    # --- its life

    async def start(
        self, fork: Callable[[], Awaitable[socket.socket]], spec: ShimSpec
    ) -> None:
        """Send the spec to a new shim and wait for its first message. `fork`: starts a
        shim and returns a connection to it. Raises: NoLauncher, OSError."""
        for _ in range(3):
            connection = await fork()
            reader, writer = await _open_streams(connection)
            writer.write(spec.encode())
            if await self._hear_first(reader, writer):
                return
        self.refuse(
            "the attempt's shim ends as soon as it is started; see "
            f"{self.folder.parent.parent / 'launcher.log'}",
            infra=True,
        )

    async def adopt(self) -> None:
        """Connect to the shim that an earlier agent started, or read from the journal
        how the attempt ended. Raises: OSError."""
        state = of_journal(await self._begun_journal())
        if state.phase == "ended":
            self._update_state(state.message)
            return
        state.progress = self._state["progress"]
        self._state, self._seen = state.message, None
        connection = connect_shim(self.folder)
        if connection is None:
            await self._recover_dead_shim()
            return
        reader, writer = await _open_streams(connection)
        writer.write(b'{"type":"watch"}\n')
        if not await self._hear_first(reader, writer):
            await self._recover_dead_shim()

    async def _begun_journal(self) -> list[Record]:
        """Return the journal's records; an empty list without any. Wait a moment for a
        new shim that has not written its first record yet."""
        for _ in range(BIRTH_LOOKS):
            if records := journal.read(self.folder / journal.FILE):
                return records
            await asyncio.sleep(0.01)
        return []

    async def _hear_first(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> bool:
        """Return whether the attempt's state is known, by the shim's first message or
        by the journal. Later messages of the shim are read too."""
        line = b""
        try:
            with suppress(OSError, ValueError):
                line = await reader.readline()
        except asyncio.CancelledError:
            # the agent ends before the shim has sent a message
            writer.close()
            raise
        if not line:
            writer.close()
            return (
                self.folder / journal.FILE
            ).exists() and await self._adopt_existing()
        message = json.loads(line)
        if message["type"] == "taken":
            writer.close()
            return await self._adopt_existing()
        if message["type"] == "refused":
            writer.close()
            self.refuse(message["why"], infra=True)
            return True
        self._writer = writer
        for request in (self._notice, self._stop, self._committed_message()):
            self._send_message(request)
        self._heard(message)
        self._following = asyncio.create_task(self._follow_shim(reader))
        return True

    async def _adopt_existing(self) -> bool:
        """Adopt the attempt that an earlier request has started, because that one takes
        precedence. Return True."""
        await self.adopt()
        return True

    async def _follow_shim(self, reader: asyncio.StreamReader) -> None:
        try:
            while line := await reader.readline():
                self._heard(json.loads(line))
        except (OSError, ValueError) as trouble:
            log.warning("invalid message of the shim of %s.%s: %s", *self.key, trouble)
        self._hang_up()
        if self._state["phase"] == "ended":
            return
        try:
            await self.adopt()
        except OSError as trouble:
            log.exception("the journal of %s.%s cannot be read", *self.key)
            self._update_state(
                {
                    **self._state,
                    "phase": "ended",
                    "trouble": f"the attempt's journal cannot be read: {trouble}",
                    "infra": True,
                }
            )

    def _heard(self, message: Record) -> None:
        if message["type"] == "state":
            self._update_state(message)
        elif message["type"] == "stalled":
            self._take_report(message)
        elif message["type"] == "warning":
            log.warning("%s.%s: %s", *self.key, message["text"])

    def _take_report(self, message: Record) -> None:
        """Keep the newest report of a rank that makes no steps. A report out of bounds
        is ignored."""
        with suppress(ValueError, KeyError, TypeError):
            report = report_of(message)
            if report.rank in self.reports or len(self.reports) < MOST_REPORTS:
                self.reports[report.rank] = report

    @property
    def declared_phases(self) -> frozenset[StallPhase]:
        """Return the phases in which ranks say that they are."""
        # a shim of an older version does not say
        return frozenset(
            phase_named(str(name)) for name in self._state.get("declared", ())
        )

    def _update_state(self, state: Record) -> None:
        self.known = True
        self._state = state
        self._changed()

    async def _recover_dead_shim(self) -> None:
        """Clean up after a dead shim: kill the processes that it left, then record and
        report the end. The record is durable if the disk has room."""
        records = journal.read(self.folder / journal.FILE) or []
        state = of_journal(records)
        if state.phase != "ended":
            launch = next(
                (record for record in records if record["type"] == "launch"), None
            )
            log.error(
                "the shim of %s.%s was killed, so its ranks are killed too", *self.key
            )
            if launch is not None:
                await self._wait_for(LocalProcess(*launch["shim"]))
                group = containment.recorded(launch["containment"])
                await asyncio.to_thread(kill_all, group, GONE_SECONDS)
            record = {
                "type": "ended",
                "at": self.wall(),
                "trouble": "the attempt's shim was killed, so its ranks were killed too",
                "infra": True,
                "progress": self._state["progress"],
            }
            _append_record(self.folder / journal.FILE, record)
            state.take(record)
        self._update_state(state.message)

    async def _wait_for(self, shim: LocalProcess) -> None:
        """Wait until the shim's process has ended, which happens shortly after it
        closes the connection; kill it if it does not end."""
        for _ in range(200):
            if not shim.lives:
                return
            await asyncio.sleep(0.005)
        shim.signal(9)

    # --- requests

    def refuse(self, why: str, *, infra: bool, of: str = "") -> None:
        default = "the attempt cannot be started on this node"
        self.refusal, self.refusal_is_infra = why or default, infra
        self.refusal_of = of
        self.known = True
        self._changed()

    def stop(self, stop: Stop, now: float) -> None:
        """Stop the attempt. A repeated call is harmless; a shorter grace period cuts a
        running one short."""
        stop_deadline = now + stop.grace_seconds
        if self.is_over or stop_deadline > self._stop_until - 0.01:
            return
        self._stop_until = stop_deadline
        self._stop = {
            "type": "stop",
            "grace_seconds": stop.grace_seconds,
            "save": stop.save,
            "why": stop.why,
        }
        self._send_message(self._stop)
        self._changed()

    def warn(self, notice: TimeWarning) -> None:
        if self._notice is None:
            self._notice = {
                "type": "warn",
                "signal": notice.signal,
                "save": notice.save,
            }
            self._send_message(self._notice)

    def overrun(self, why: str) -> None:
        """End the attempt for this reason. The shim treats the message as if the
        program itself reported that it cannot continue."""
        if not self.is_over:
            self._send_message({"type": "refuse", "why": why, "infra": False})

    def signal(self, number: int, to: To) -> None:
        self._send_message({"type": "signal", "number": number, "to": to})

    def committed(self, steps: tuple[int, ...], pinned: tuple[SaveKey, ...]) -> None:
        before = (self._committed, self._pinned)
        if (frozenset(steps), frozenset(pinned)) != before:
            self._committed, self._seen = frozenset(steps), None
            self._pinned = frozenset(pinned)
            self._send_message(self._committed_message())

    def _committed_message(self) -> Record | None:
        steps = sorted(self._committed)
        pinned = sorted(self._pinned)
        if not steps:
            return None  # nothing is pruned before a save is recorded
        return {"type": "committed", "steps": steps, "pinned": pinned}

    def _send_message(self, message: Record | None) -> None:
        if message is not None and self._writer is not None:
            self._writer.write(json.dumps(message).encode() + b"\n")

    async def close(self) -> None:
        """Disconnect from the shim, which continues to run."""
        if self._following is not None:
            self._following.cancel()
            with suppress(asyncio.CancelledError):
                await self._following
        self._hang_up()

    def _hang_up(self) -> None:
        if self._writer is not None:
            self._writer.close()
            self._writer = None


def kill_all(group: containment.Containment, seconds: float) -> bool:
    """Kill the processes repeatedly, for at most `seconds`; return whether none is
    left."""
    deadline = time.monotonic() + seconds
    pause_seconds = 0.002
    while group.pids():
        if time.monotonic() > deadline:
            return False
        group.kill()
        time.sleep(pause_seconds)
        pause_seconds = min(pause_seconds * 1.5, 0.1)
    group.remove()
    return True


def _pairs_of(metrics: Iterable[Sequence[Any]]) -> Metrics:
    return tuple((str(name), float(value)) for name, value in metrics)


async def _open_streams(
    connection: socket.socket,
) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    return await asyncio.open_unix_connection(sock=connection, limit=LINE_BYTES)


def _append_record(file: Path, record: Record) -> None:
    """Append a record to the journal of a dead shim. If the disk is full, nothing is
    lost: the next agent finds the same state again."""
    with suppress(OSError):
        book = journal.Journal.reopen(file)
        try:
            book.append(record)
        finally:
            book.close()


def _ran_seconds(started_since_boot: float | None) -> float | None:
    if started_since_boot is None:
        return None
    return since_boot() - started_since_boot


def _progress_of(told: Record | None) -> Progress | None:
    """Return the progress that a shim has reported; None if it is missing or out of
    bounds. The bounds are checked here because an older shim checks none."""
    record = progress_within(told)
    if record is None:
        return None
    paces = tuple(Pace(*pace) for pace in record["ranks"])
    scalars = tuple(Scalar(*scalar_fields) for scalar_fields in record["scalars"])
    return Progress(**{**record, "ranks": paces, "scalars": scalars})


def _exit_of(record: Record) -> tuple[int, Exit]:
    fields = {name: value for name, value in record.items() if name != "rank"}
    return int(record["rank"]), Exit(**fields)
