"""Messages between the agent and its check process: one JSON object a line."""

import msgspec

from corral.domain.active_checks import CheckKind, CheckUp
from corral.domain.resources import Gpu

BYTES_PER_SECOND = "B/s"
ON_CPU = " on CPU"  # behind the unit of what stands in for a GPU


class CheckRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A request of the agent to its check process. `offset_seconds` is the node's clock
    minus the head's clock, as the agent knows it."""

    checkup: CheckUp
    node: str
    gpus: tuple[Gpu, ...] = ()
    shared: tuple[str, ...] = ()
    offset_seconds: float | None = None


class CheckFinding(msgspec.Struct, frozen=True, kw_only=True):
    """One result of a check. `failed` is None if the head has to compare the value with
    others to decide. `ran` is False if the check did not run; `text` then has the
    reason."""

    kind: CheckKind
    text: str
    device: str = ""
    gpu: int | None = None
    value: float | None = None
    unit: str = ""
    failed: bool | None = None
    ran: bool = True
