"""Priority of helpers that run next to the ranks of a node."""

import ctypes
import os
from contextlib import suppress
from typing import Final

NICE: Final = 10
SYS_IOPRIO_SET: Final = {"x86_64": 251, "aarch64": 30, "ppc64le": 273, "riscv64": 30}
_LOWEST_BEST_EFFORT: Final = (2 << 13) | 7  # ioprio_set(2): class in the upper bits
_libc: Final = ctypes.CDLL(None, use_errno=True)


def take_low_priority() -> None:
    """Give this process the lowest priority for CPU time and disk time."""
    with suppress(OSError):
        os.nice(NICE)
    number = SYS_IOPRIO_SET.get(os.uname().machine)
    if number is not None:
        _libc.syscall(ctypes.c_long(number), 1, 0, _LOWEST_BEST_EFFORT)
