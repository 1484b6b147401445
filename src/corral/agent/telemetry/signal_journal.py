"""Journal on the node's disk. It holds the signals that the head has not recorded, and
the state of the signal rules."""

import logging
import os
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

import msgspec

from corral.agent.telemetry.fault_rules import RuleMemory
from corral.domain.ids import BootId
from corral.domain.node_signal import Signal

FILE: Final = "signals.json"
MOST_KEPT: Final = 256  # when more wait for the head, the oldest go
MOST_AT_ONCE: Final = 64  # in one beat
log = logging.getLogger(__name__)


class _Page(msgspec.Struct, frozen=True, kw_only=True):
    boot: BootId
    number: int
    waiting: tuple[Signal, ...] = ()
    memory: RuleMemory = msgspec.field(default_factory=RuleMemory)


@dataclass(slots=True)
class Notebook:
    """Journal of signals. Their numbers continue to rise after a restart of the agent.

    A node without a file first asks the head for the last recorded number, because a
    node that was reinstalled under its old name must not begin at 1 again.
    """

    file: Path
    boot: BootId
    memory: RuleMemory = field(default_factory=RuleMemory)
    waiting: tuple[Signal, ...] = ()
    number: int | None = None

    def __post_init__(self) -> None:
        try:
            page = msgspec.json.decode(self.file.read_bytes(), type=_Page)
        except FileNotFoundError:
            return
        except (OSError, ValueError) as trouble:
            log.warning(
                "%s cannot be read and is created again: %s", self.file, trouble
            )
            return
        self.number, self.waiting = page.number, page.waiting
        if page.boot == self.boot:  # a rebooted machine begins without a memory
            # fewer may be its own from now on
            past = replace(page.memory.past, gpus={})
            self.memory = replace(page.memory, past=past)

    @property
    def to_tell(self) -> tuple[Signal, ...]:
        """Return the next signals to report to the head, oldest first."""
        return self.waiting[:MOST_AT_ONCE] if self.number is not None else ()

    def take(self, memory: RuleMemory, signals: tuple[Signal, ...]) -> None:
        """Keep the new state of the rules. Number the signals, and keep them until the
        head has recorded them."""
        changed = bool(signals) or memory.told.keys() != self.memory.told.keys()
        self.memory = memory
        self.waiting = (*self.waiting, *signals)
        if len(self.waiting) > MOST_KEPT:
            log.warning(
                "%d signals were dropped before the head recorded them",
                len(self.waiting) - MOST_KEPT,
            )
            self.waiting = self.waiting[-MOST_KEPT:]
        if self.number is not None:
            self._count()
            if changed:
                self._write_page()

    def recorded(self, number: int) -> None:
        """Remove the signals up to this number, which the head has recorded."""
        if self.number is None:
            self.number = number
            self._count()
            self._write_page()
        elif self.waiting and self.waiting[0].number <= number:
            self.waiting = tuple(
                signal for signal in self.waiting if signal.number > number
            )
            self._write_page()
        self.number = max(self.number, number)

    def _count(self) -> None:
        assert self.number is not None
        counted = []
        for signal in self.waiting:
            if signal.number == 0:
                self.number += 1
            counted.append(
                signal if signal.number else replace(signal, number=self.number)
            )
        self.waiting = tuple(counted)

    def _write_page(self) -> None:
        """Write the journal to disk. If the disk is full, the journal stays in memory,
        and is lost only for a later agent process."""
        assert self.number is not None
        page = _Page(
            boot=self.boot, number=self.number, waiting=self.waiting, memory=self.memory
        )
        temporary_file = self.file.with_name(f".{self.file.name}")
        try:
            with os.fdopen(
                os.open(temporary_file, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600),
                "wb",
            ) as to:
                to.write(msgspec.json.encode(page))
                to.flush()
                os.fsync(to.fileno())
            temporary_file.rename(self.file)
        except OSError as trouble:
            log.warning("%s cannot be written: %s", self.file, trouble)
