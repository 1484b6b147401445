"""Active checks: a node is tested while nothing runs on it, and the results are kept."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from corral.domain.ids import NodeId
from corral.domain.observed_state import AttemptKey

MOST_MEASURES: Final = 64  # kept of a node; the oldest go first
MOST_PAST: Final = 16  # earlier values kept of each
MOST_CHECKUPS: Final = 8  # that wait at one node


class CheckKind(StrEnum):
    """Part or property of a node that an active check tests."""

    MATMUL = "matmul"  # products with a known hash: silent corruption
    MEMORY = "memory"  # bandwidth of a GPU's memory
    ALL_REDUCE = "all-reduce"  # between the GPUs of the node
    LINK = "link"  # all-reduce between two nodes
    DISK = "disk"
    CLOCK = "clock"
    # how a folder of data is read: of whoever asks, not of the node's health
    DATA = "data"


class Result(StrEnum):
    PASSED = "passed"
    FAILED = "failed"
    MEASURED = "measured"  # there is nothing yet that it could be held against
    NOT_RUN = "not run"


WHOLE: Final = (
    CheckKind.MATMUL,
    CheckKind.MEMORY,
    CheckKind.ALL_REDUCE,
    CheckKind.DISK,
    CheckKind.CLOCK,
)  # what shows of one node alone that it is well
# what a gang that is about to begin waits for
QUICK: Final = (CheckKind.MATMUL, CheckKind.MEMORY)


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckUp:
    """Round of checks that is requested for a node. It starts as soon as nothing runs
    on the node.

    Times are the head's wall clock. A round that has not started by `until` never
    starts. `begun_at` is when the round was first sent to the node. `seconds` limits
    the computing time of each long check. `paths` are the folders of the DISK and DATA
    checks, in addition to the node's own. For a LINK check, `peer` is the other node.
    The node whose `leads` is True listens at `address` and `port`; the other one
    connects. `secret` is known only to these two nodes and the head. `gang` is the
    attempt whose ranks wait for the round; None if no attempt waits.
    """

    id: str
    kinds: tuple[CheckKind, ...]
    by: str
    at: float
    until: float
    seconds: float = 5.0
    paths: tuple[str, ...] = ()
    peer: NodeId = NodeId("")
    leads: bool = False
    address: str = ""
    port: int = 0
    secret: str = ""
    gang: AttemptKey | None = None
    begun_at: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckMeasure:
    """Last result of one check on one device. `device` is a path, or the other node of
    a link; a GPU has its index in `gpu` instead.

    `value` is in `unit`; for bandwidths, more is better. `expected` is the least value
    that passes; None if there is no known value to compare with. `past` are earlier
    values, the newest last.
    """

    kind: CheckKind
    result: Result
    text: str
    at: float
    checkup: str = ""
    gpu: int | None = None
    device: str = ""
    value: float | None = None
    unit: str = ""
    expected: float | None = None
    past: tuple[float, ...] = ()

    @property
    def key(self) -> tuple[CheckKind, int | None, str]:
        return (self.kind, self.gpu, self.device)

    @property
    def where(self) -> str:
        """Return the checked device. For example: GPU 3, or /data, or "" for the whole
        node."""
        return f"GPU {self.gpu}" if self.gpu is not None else self.device
