"""A signal: an event that a node has noticed about itself, once. The health rules
derive verdicts from signals."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from corral.domain.ids import AttemptNumber, JobId, NodeId

# Codes, by the kind of the signal.
CORRECTED, UNCORRECTED = 0, 1  # of ECC and of MEMORY
FULL: Final = 2  # of MEMORY: out of memory, and the kernel has killed a process
PENDING, FAILED = 0, 1  # of REMAP; of CHECK the second is the same
PASSED: Final = 0
XID_RECOVERY: Final = 154  # code with which the driver names the remedy for a GPU
NOT_RUN: Final = 2  # of CHECK; None: it was only measured
OVER: Final = "all"  # the device of the signal that ends a round of checks


class SignalKind(StrEnum):
    """Kind of an event that a node has noticed about itself."""

    XID = "xid"  # an error of NVIDIA's driver, by its number
    SXID = "sxid"  # one of an NVSwitch
    ECC = "ecc"  # CORRECTED or UNCORRECTED
    REMAP = "remap"  # PENDING or FAILED
    NVLINK = "nvlink"
    PCIE = "pcie"  # slower or narrower than it could be
    THROTTLE = "throttle"  # for its heat or its power brake
    GPU_LOST = "gpu-lost"  # fallen off the bus, or there no more
    SILENT = "silent"  # a driver or a file system that does not answer
    PORT_DOWN = "port-down"
    PORT_ERRORS = "port-errors"
    PORT_SLOW = "port-slow"
    DISK_FULL = "disk-full"
    DISK_ERRORS = "disk-errors"
    CLOCK = "clock"
    MEMORY = "memory"  # the machine's own, by EDAC or the kernel's log; as ECC, or FULL
    LEMON = "lemon"  # from the head: its share of failures, `health.lemon_nodes`
    # an active one: PASSED, FAILED, NOT_RUN, None where it is only measured
    CHECK = "check"


@dataclass(frozen=True, slots=True, kw_only=True)
class Signal:
    """One event that a node noticed. `number` rises with each signal of a node, also
    over restarts of its agent, so that the head processes each signal once. `at` is the
    node's wall clock. `attempts` ran on the device then.

    `told_by` is the pilot of the node that noticed it, whose signals have their own
    numbers (0062); None for the node's agent. `uuid` is that of the GPU, if its index
    is not permanent, as on a node from a batch system. `lasting`: the condition still
    holds, and may have held before the first check. `recovery` is the action that the
    driver itself names (XID 154); "" if none. `checkup` is the round of checks that the
    signal is a result of; the last signal of a round has the device OVER. `confirmed`
    False: a line of the kernel's log reports it, and the GPU's driver does not confirm
    it yet; no job is ended for it.
    """

    number: int
    at: float
    kind: SignalKind
    text: str
    code: int | None = None
    gpu: int | None = None  # Corral's index
    device: str = ""  # a port, a path, a link, the name of a check
    value: float | None = None
    limit: float | None = None
    recovery: str = ""
    checkup: str = ""
    unit: str = ""
    attempts: tuple[tuple[JobId, AttemptNumber], ...] = ()
    told_by: NodeId | None = None
    uuid: str = ""
    lasting: bool = False
    confirmed: bool = True
