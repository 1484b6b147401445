"""Faults of a machine that explain why programs ended, and the resulting cause. Pure.

A program reports its symptom, and rarely the broken part. A port that went down looks
like a lost peer, and a failed page of memory looks like a crash. The node's
observations at that time are more precise (0064).
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from corral.domain.failure_class import FailureKind as F
from corral.domain.node_fault import NodeCondition
from corral.domain.node_signal import FULL, UNCORRECTED, SignalKind
from corral.domain.telemetry import PORTS, SENSORS

CLOCKS_SECONDS: Final = 3.0  # a report this late may describe an event before the end
_BETWEEN_RANKS: Final = frozenset(
    {F.PEER, F.HANG, F.RENDEZVOUS, F.NETWORK, F.SERVICE_TIMEOUT, F.FABRIC, F.DNS}
    | {F.PROXY}
)
_ON_A_GPU: Final = frozenset(
    {F.UNKNOWN, F.CRASH, F.GPU_PROGRAM, F.GPU_MISSING, F.GPU_FAULT, F.HANG} | {F.STALL}
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Explains:
    """Rule by which a fault explains the end of a program: an end with a class in `of`,
    at most `seconds` after the fault was noticed, gets the class `by`. `anywhere`: the
    fault may be on any node of the gang; else it must be on the culprit's node.
    `is_machine`: the failure counts as the cluster's; else it still counts as the
    program's."""

    of: frozenset[F]
    by: F
    seconds: float
    anywhere: bool = False
    is_machine: bool = True


_GPU: Final = Explains(of=_ON_A_GPU, by=F.GPU_FAULT, seconds=600.0)
_RULES: Final[Mapping[tuple[SignalKind, int | None], Explains]] = {
    (SignalKind.XID, None): Explains(
        of=frozenset({F.GPU_FAULT}), by=F.GPU_FAULT, seconds=60.0
    ),
    (SignalKind.GPU_LOST, None): _GPU,
    (SignalKind.ECC, UNCORRECTED): _GPU,
    (SignalKind.PORT_DOWN, None): Explains(
        of=_BETWEEN_RANKS, by=F.FABRIC, seconds=120.0, anywhere=True
    ),
    (SignalKind.MEMORY, UNCORRECTED): Explains(
        of=frozenset({F.CRASH, F.KILLED}), by=F.CLUSTER, seconds=10.0
    ),
    (SignalKind.MEMORY, FULL): Explains(
        of=frozenset({F.KILLED, F.HELPER}),
        by=F.HOST_MEMORY,
        seconds=5.0,
        is_machine=False,
    ),
    (SignalKind.DISK_ERRORS, None): Explains(
        of=frozenset({F.DATA, F.CHECKPOINT, F.PERMISSION, F.STORAGE}),
        by=F.STORAGE,
        seconds=120.0,
    ),
    (SignalKind.SILENT, None): Explains(
        of=_BETWEEN_RANKS | {F.STORAGE}, by=F.STORAGE, seconds=600.0, anywhere=True
    ),
}
# where the machine was busy, this is no fault of it
_SLOW: Final = frozenset({PORTS, SENSORS})
_BUS_ERROR: Final = 128 + 7  # a mapped file whose page cannot be read


def explanation(
    failed: F, exit_code: int | None, condition: NodeCondition, before_seconds: float
) -> Explains | None:
    """Return the rule by which the fault `condition` explains an end with the class
    `failed`; None if the fault does not explain the end.

    Args:
        before_seconds: how long before the end the fault was noticed.
    """
    if not condition.confirmed:
        return None
    kind, code = condition.kind, condition.code
    if kind == SignalKind.SILENT and condition.device in _SLOW:
        return None
    if kind == SignalKind.SILENT and condition.gpu is not None:
        rule: Explains | None = _GPU
    else:
        rule = _RULES.get((kind, code)) or _RULES.get((kind, None))
    if rule is None or not -CLOCKS_SECONDS <= before_seconds <= rule.seconds:
        return None
    unread = rule.by == F.STORAGE and failed == F.CRASH and exit_code == _BUS_ERROR
    return rule if failed in rule.of or unread else None
