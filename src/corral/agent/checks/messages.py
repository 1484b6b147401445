"""Messages between the agent and its check process: one JSON object a line."""

import msgspec

from corral.domain.active_checks import CheckKind, CheckUp
from corral.domain.resources import Gpu

BYTES_PER_SECOND = "B/s"
ON_CPU = " on CPU"  # behind the unit of what stands in for a GPU


class CheckRequest(msgspec.Struct, frozen=True, kw_only=True):
    """`offset_seconds`: the node's clock less the head's, as the agent knows it."""

    checkup: CheckUp
    node: str
    gpus: tuple[Gpu, ...] = ()
    shared: tuple[str, ...] = ()
    offset_seconds: float | None = None


class CheckFinding(msgspec.Struct, frozen=True, kw_only=True):
    """One result. `failed` None: what it is held against, the head knows. `ran` False:
    why not."""

    kind: CheckKind
    text: str
    device: str = ""
    gpu: int | None = None
    value: float | None = None
    unit: str = ""
    failed: bool | None = None
    ran: bool = True
