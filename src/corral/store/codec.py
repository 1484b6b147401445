"""Rows as JSON text with a checksum. What does not read back the same is never written."""

import zlib
from collections.abc import Iterable
from typing import Final, Generic, TypeVar

import msgspec

from corral.domain.account import Account
from corral.domain.attempt import Allocation, Attempt, Receipt, Save
from corral.domain.errors import InvariantBroken, SpecInvalid, StoreTrouble
from corral.domain.forecast import Told
from corral.domain.imported import Imported
from corral.domain.job import Job
from corral.domain.listed import ListedJob
from corral.domain.node import Node
from corral.domain.queue import QueueTree
from corral.domain.use import Debt, Reservation, Spent, Use
from corral.domain.wishes import (
    Asked,
    BarSuspects,
    Cancel,
    CheckNodes,
    Requeue,
    Resume,
    SetJob,
    SetLabels,
    SetNode,
    SetQueues,
    Submit,
    Suspend,
)
from corral.domain.world import Event

Row = TypeVar("Row")
Sealed = tuple[str, int]  # the record, and its CRC-32

RECOVER: Final = (
    "keep a copy of the file and of its -wal; then restore a backup, or salvage what can be read "
    "with: sqlite3 FILE .recover | sqlite3 NEW"
)


class Codec(Generic[Row]):
    """One kind of row to and from its record."""

    def __init__(self, kind: str, shape: type[Row]) -> None:
        self.kind = kind
        self._decode = msgspec.json.Decoder(shape).decode

    def write(self, row: Row) -> Sealed:
        """The row's record.

        Raises: InvariantBroken for what a record cannot hold: half a surrogate, no finite number.
        """
        try:
            record = msgspec.json.encode(row)
            same = self._decode(record) == row
        except (ValueError, OverflowError, msgspec.MsgspecError) as error:
            raise InvariantBroken(f"the {self.kind} cannot be recorded: {error}") from error
        if not same:
            raise InvariantBroken(f"the {self.kind} does not read back as written: {row}")
        return record.decode(), zlib.crc32(record)

    def read(self, record: str, crc: int) -> Row:
        """The row again.

        Raises: StoreTrouble when the record is not what was written.
        """
        check(self.kind, record, crc)
        return self.decode(record)

    def decode(self, record: str) -> Row:
        """The row of a record that has been checked already."""
        try:
            return self._decode(record)
        except msgspec.MsgspecError as error:
            raise StoreTrouble(
                f"a record of a {self.kind} cannot be read: {error}",
                hint="was it written by a newer corral? install that one, or restore a backup",
            ) from error


JOB: Final = Codec("job", Job)
LISTED: Final = Codec("job", ListedJob)  # read of what JOB has written
ATTEMPT: Final = Codec("attempt", Attempt)
ALLOCATION: Final = Codec("allocation", Allocation)
NODE: Final = Codec("node", Node)
SAVE: Final = Codec("save", Save)
RECEIPT: Final = Codec("receipt", Receipt)
EVENT: Final = Codec("event", Event)
QUEUES: Final = Codec("queue tree", QueueTree)
USE: Final = Codec("use", Use)
SPENT: Final = Codec("budget", Spent)
ACCOUNT: Final = Codec("account", Account)
DEBT: Final = Codec("debt", Debt)
RESERVATION: Final = Codec("reservation", Reservation)
TOLD: Final = Codec("forecast", Told)
IMPORTED: Final = Codec("imported job", Imported)

_ASKED: Final = {
    "submit": Codec("submit", Submit),
    "cancel": Codec("cancel", Cancel),
    "suspend": Codec("suspend", Suspend),
    "resume": Codec("resume", Resume),
    "requeue": Codec("requeue", Requeue),
    "set_job": Codec("set_job", SetJob),
    "set_node": Codec("set_node", SetNode),
    "bar_suspects": Codec("bar_suspects", BarSuspects),
    "check_nodes": Codec("check_nodes", CheckNodes),
    "set_labels": Codec("set_labels", SetLabels),
    "set_queues": Codec("set_queues", SetQueues),
}
_KINDS: Final[dict[type[Asked], str]] = {
    Submit: "submit",
    Cancel: "cancel",
    Suspend: "suspend",
    Resume: "resume",
    Requeue: "requeue",
    SetJob: "set_job",
    SetNode: "set_node",
    BarSuspects: "bar_suspects",
    CheckNodes: "check_nodes",
    SetLabels: "set_labels",
    SetQueues: "set_queues",
}


def check(kind: str, text: str, crc: int) -> None:
    """Raises: StoreTrouble when the text is not the one that this checksum was made of."""
    if crc_of(text) != crc:
        raise StoreTrouble(
            f"a record of a {kind} is damaged: its checksum does not match", hint=RECOVER
        )


def crc_of(text: str) -> int:
    return zlib.crc32(text.encode())


def write_asked(asked: Asked) -> tuple[str, str]:
    """(kind, record) of what was asked.

    Raises: SpecInvalid when it holds what cannot be recorded: nothing has been acknowledged yet.
    """
    kind = _KINDS[type(asked)]
    codec: Codec[Asked] = _ASKED[kind]  # type: ignore[assignment]
    try:
        record, _ = codec.write(asked)
    except InvariantBroken as error:
        raise SpecInvalid(
            error.message, hint="use valid Unicode text and finite numbers only"
        ) from error
    return kind, record


def read_asked(kind: str, record: str) -> Asked:
    """What was asked. Raises: StoreTrouble when it cannot be read."""
    if kind not in _ASKED:
        raise StoreTrouble(f"a wish of an unknown kind is recorded: {kind!r}", hint=RECOVER)
    codec: Codec[Asked] = _ASKED[kind]  # type: ignore[assignment]
    return codec.decode(record)


def text_of(columns: Iterable[object]) -> str:
    """The columns as a JSON list: for json_each, and to make a checksum of."""
    return msgspec.json.encode(tuple(columns)).decode()
