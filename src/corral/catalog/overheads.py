"""Memory of a GPU that a model cannot use, by the GPU's architecture."""

from dataclasses import dataclass
from functools import cache
from typing import Final

from corral.catalog.facts import table

MIB: Final = 2.0**20


@dataclass(frozen=True, slots=True, kw_only=True)
class Overhead:
    """Bytes of a GPU that hold no number of a model.

    `workspace`: workspace of the matrix libraries, taken from the allocator;
    `expert_workspace`: additional workspace for the grouped matrix product of experts.
    `context`: memory of the driver and its kernels, and `collectives`: memory of NCCL,
    both outside the allocator. `unused_share`: memory that the allocator holds beyond
    its peak, as a share of the temporary memory (activations and the like).
    `expert_load`: tokens for the experts of the busiest GPU, divided by the mean.
    `kept_free`: share of a GPU's memory that a plan leaves unused.
    """

    workspace: float
    expert_workspace: float
    context: float
    collectives: float
    unused_share: float
    expert_load: float
    kept_free: float


@cache
def overhead(architecture: str = "") -> Overhead:
    """Return the overhead of an architecture, for example hopper; missing values are
    those of any GPU."""
    overhead_rows = table("overheads")
    facts = {**overhead_rows["any"], **overhead_rows.get(architecture, {})}
    own_numbers = {quantity: fact.number for quantity, fact in facts.items()}
    return Overhead(
        workspace=(own_numbers["cublas_workspace"] + own_numbers["engine_workspace"])
        * MIB,
        expert_workspace=own_numbers["expert_streams"]
        * own_numbers["engine_workspace"]
        * MIB,
        context=own_numbers["context"] * 1e9,
        collectives=own_numbers["collectives"] * 1e9,
        unused_share=own_numbers["unused_share"],
        expert_load=own_numbers["expert_load"],
        kept_free=own_numbers["kept_free"],
    )
