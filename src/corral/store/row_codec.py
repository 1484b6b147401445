"""Conversion of rows to JSON text with a checksum, and back. A row that would not read
back identically is never written."""

import re
import zlib
from collections.abc import Iterable, Mapping
from typing import Any, Final, Generic, TypeVar

import msgspec

from corral.domain.attempt import Allocation, Attempt, Save
from corral.domain.batch import Batch, StoredFile
from corral.domain.errors import InvariantBroken, SpecInvalid, StoreTrouble
from corral.domain.gateway_counts import GatewayCount
from corral.domain.imported import Imported
from corral.domain.job import Job
from corral.domain.job_summary import ListedJob
from corral.domain.ledger import UsageRecord
from corral.domain.node import Node
from corral.domain.queue_tree import QueueTree
from corral.domain.receipt import Receipt
from corral.domain.requests import (
    ApplyService,
    Asked,
    Cancel,
    ChangeJobs,
    ChangeSave,
    CheckNodes,
    CordonSuspects,
    Requeue,
    Resume,
    RollBackService,
    ScaleService,
    SetJob,
    SetLabels,
    SetNode,
    SetQueues,
    StopService,
    Submit,
    Suspend,
)
from corral.domain.run_history import StartForecastTold
from corral.domain.service import Service
from corral.domain.spec_content import SpecContent
from corral.domain.usage import BudgetSpent, Debt, QueueUsage, Reservation
from corral.domain.world import Event
from corral.store.submissions import Submission

Row = TypeVar("Row")
Sealed = tuple[str, int]  # the record, and its CRC-32

RECOVER: Final = (
    "copy the store first: its file and -wal, or with PostgreSQL by pg_dump; then restore a "
    "backup: corral restore; from a file, what can be read is saved by: sqlite3 FILE .recover | "
    "sqlite3 NEW"
)


_NUL: Final = r"\u0000"
# not after an escaped backslash
_ESCAPED_NUL: Final = re.compile(r"(?<!\\)(?:\\\\)*\\u0000")
# of a text that is a key: PostgreSQL indexes at most 2,704
MOST_COLUMN_BYTES: Final = 2_000
_LEAST_INTEGER, _MOST_INTEGER = -(2**63), 2**63 - 1


class Codec(Generic[Row]):
    """Converter between one kind of row and its record, a JSON text with a checksum."""

    def __init__(self, kind: str, shape: type[Row]) -> None:
        self.kind = kind
        self._decode = msgspec.json.Decoder(shape).decode

    def write(self, row: Row) -> Sealed:
        """Return the row's record.

        Raises: InvariantBroken for a value that a record cannot hold: half of a
        surrogate pair, or a number that is not finite.
        """
        try:
            record = msgspec.json.encode(row)
            is_identical = self._decode(record) == row
        except (ValueError, OverflowError, msgspec.MsgspecError) as error:
            raise InvariantBroken(
                f"the {self.kind} cannot be stored: {error}"
            ) from error
        if not is_identical:
            raise InvariantBroken(
                f"the {self.kind} would change when it is stored and read back: {row}"
            )
        return record.decode(), zlib.crc32(record)

    def read(self, record: str, crc: int) -> Row:
        """Return the row of a record.

        Raises: StoreTrouble when the record is not what was written.
        """
        check(self.kind, record, crc)
        return self.decode(record)

    def decode(self, record: str) -> Row:
        """Return the row of a record whose checksum has been checked already."""
        try:
            return self._decode(record)
        except msgspec.MsgspecError as error:
            raise StoreTrouble(
                f"a record of the store ({self.kind}) cannot be read: {error}",
                hint="if a newer corral wrote it, install that version; else restore a backup",
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
USE: Final = Codec("use", QueueUsage)
SPENT: Final = Codec("budget", BudgetSpent)
ACCOUNT: Final = Codec("account", UsageRecord)
DEBT: Final = Codec("debt", Debt)
RESERVATION: Final = Codec("reservation", Reservation)
SERVICE: Final = Codec("service", Service)
FILE: Final = Codec("file", StoredFile)
BATCH: Final = Codec("batch", Batch)
GATEWAY_COUNT: Final = Codec("count of a gateway", GatewayCount)
TOLD: Final = Codec("forecast", StartForecastTold)
IMPORTED: Final = Codec("imported job", Imported)
CONTENT: Final = Codec("spec", SpecContent)

Recorded = (
    Submission
    | Cancel
    | Suspend
    | Resume
    | Requeue
    | ChangeJobs
    | SetJob
    | ChangeSave
    | SetNode
    | CordonSuspects
    | CheckNodes
    | SetLabels
    | SetQueues
    | ApplyService
    | ScaleService
    | RollBackService
    | StopService
)

_ASKED: Final = {
    # of stores before schema 0012: one spec for each job
    "submit": Codec("submit", Submit),
    "submission": Codec("submit", Submission),
    "cancel": Codec("cancel", Cancel),
    "suspend": Codec("suspend", Suspend),
    "resume": Codec("resume", Resume),
    "requeue": Codec("requeue", Requeue),
    "change_jobs": Codec("change_jobs", ChangeJobs),
    "set_job": Codec("set_job", SetJob),
    "change_save": Codec("change_save", ChangeSave),
    "set_node": Codec("set_node", SetNode),
    "cordon_suspects": Codec("cordon_suspects", CordonSuspects),
    "check_nodes": Codec("check_nodes", CheckNodes),
    "set_labels": Codec("set_labels", SetLabels),
    "set_queues": Codec("set_queues", SetQueues),
    "apply_service": Codec("apply_service", ApplyService),
    "scale_service": Codec("scale_service", ScaleService),
    "roll_back_service": Codec("roll_back_service", RollBackService),
    "stop_service": Codec("stop_service", StopService),
}
_KINDS: Final[dict[type[Recorded], str]] = {
    Submission: "submission",
    Cancel: "cancel",
    Suspend: "suspend",
    Resume: "resume",
    Requeue: "requeue",
    ChangeJobs: "change_jobs",
    SetJob: "set_job",
    ChangeSave: "change_save",
    SetNode: "set_node",
    CordonSuspects: "cordon_suspects",
    CheckNodes: "check_nodes",
    SetLabels: "set_labels",
    SetQueues: "set_queues",
    ApplyService: "apply_service",
    ScaleService: "scale_service",
    RollBackService: "roll_back_service",
    StopService: "stop_service",
}


def check_columns(columns: Mapping[str, Any]) -> None:
    """Check that the database can store these column values, for a row whose record has
    been created already.

    Raises: InvariantBroken if it cannot.
    """
    for name, value in columns.items():
        if isinstance(value, int) and not _LEAST_INTEGER <= value <= _MOST_INTEGER:
            raise InvariantBroken(
                f"{name} is an integer of {value.bit_length()} bits; at most 64 bits can "
                "be stored"
            )
        is_key = isinstance(value, str) and name != "record"
        if is_key and (len(value) > MOST_COLUMN_BYTES or "\0" in value):
            raise InvariantBroken(
                f"{name} is longer than {MOST_COLUMN_BYTES:,} characters, or contains a NUL"
            )


def check(kind: str, text: str, crc: int) -> None:
    """Check the text against its checksum. Raises: StoreTrouble when they do not match."""
    if crc_of(text) != crc:
        raise StoreTrouble(
            f"a record of the store is damaged ({kind}): its checksum does not match",
            hint=RECOVER,
        )


def crc_of(text: str) -> int:
    return zlib.crc32(text.encode())


def write_asked(asked: Recorded) -> tuple[str, str]:
    """Return a request in the form in which it is stored: (kind, record).

    Raises: SpecInvalid when the request holds a value that cannot be recorded; nothing
    has been acknowledged yet.
    """
    kind = _KINDS[type(asked)]
    codec: Codec[Recorded] = _ASKED[kind]  # type: ignore[assignment]
    record, _ = _write_new(codec, asked)
    return kind, record


def write_content(content: SpecContent) -> Sealed:
    """Return the record of a spec's large fields. Raises: SpecInvalid, as write_asked
    does."""
    return _write_new(CONTENT, content)


def _write_new(codec: Codec[Row], row: Row) -> Sealed:
    try:
        record, crc = codec.write(row)
    except InvariantBroken as error:
        raise SpecInvalid(
            error.message, hint="use valid Unicode text and finite numbers only"
        ) from error
    if has_nul(record):
        raise SpecInvalid(
            "a text of the request contains a NUL character, which is not allowed",
            hint="remove the NUL character (\\u0000) from the text",
        )
    return record, crc


def has_nul(record: str) -> bool:
    """Return whether a text in the record holds a NUL: PostgreSQL cannot read such a
    record as JSON."""
    return _NUL in record and _ESCAPED_NUL.search(record) is not None


def read_asked(kind: str, record: str) -> Asked | Submission:
    """Read a request. Raises: StoreTrouble if it cannot be read."""
    if kind not in _ASKED:
        raise StoreTrouble(
            f"the store contains a request of the unknown kind {kind!r}", hint=RECOVER
        )
    codec: Codec[Asked | Submission] = _ASKED[kind]  # type: ignore[assignment]
    return codec.decode(record)


def text_of(columns: Iterable[object]) -> str:
    """Return the columns as a JSON list, for json_each and for checksums."""
    return msgspec.json.encode(tuple(columns)).decode()
