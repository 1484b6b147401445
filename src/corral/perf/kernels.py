"""Efficiency of kernels against a device's data sheet, by architecture:
catalog/data/kernels.csv."""

from dataclasses import dataclass
from functools import cache
from typing import Final

from corral.catalog.facts import table

DEFAULT: Final = "default"  # an architecture without measurements


@dataclass(frozen=True, slots=True, kw_only=True)
class Kernels:
    """Efficiency of kernels. `matmul`: share of the dense peak that a large matrix
    product reaches, at 16 bits or more. `narrow_matmul`: the same at 8 bits or less.
    `memory`: share of the memory bandwidth that kernels reach. `seconds`: time of an
    empty kernel."""

    matmul: float
    narrow_matmul: float
    memory: float
    seconds: float


@cache
def kernels(architecture: str) -> Kernels:
    """Return the kernel efficiency of the architecture; missing values are taken from
    the table's default."""
    kernel_rows = table("kernels")
    facts = {**kernel_rows[DEFAULT], **kernel_rows.get(architecture, {})}
    return Kernels(
        matmul=facts["matmul_share"].number,
        narrow_matmul=facts["narrow_matmul_share"].number,
        memory=facts["memory_share"].number,
        seconds=facts["kernel"].number * 1e-6,
    )
