"""Memory of a GPU that no model can use, by the GPU's architecture."""

from dataclasses import dataclass
from functools import cache
from typing import Final

from corral.catalog.facts import table

MIB: Final = 2.0**20


@dataclass(frozen=True, slots=True, kw_only=True)
class Overhead:
    """Bytes of a GPU that hold no number of a model.

    `workspace`: of the matrix libraries, taken by the allocator; `expert_workspace`: beside it, of
    the grouped product of experts. `context`: of the driver and its
    kernels, and `collectives`: of NCCL, both beside the allocator. `unused_share`: what the
    allocator holds beyond its peak, as a share of what comes and goes (activations and the like).
    `expert_load`: tokens that experts of the fullest GPU get, over the mean.
    `kept_free`: the share of a GPU's memory that a plan leaves alone.
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
    """Return the overhead of an architecture, for example hopper; missing values are those of any
    GPU."""
    known = table("overheads")
    facts = {**known["any"], **known.get(architecture, {})}
    own = {quantity: fact.number for quantity, fact in facts.items()}
    return Overhead(
        workspace=(own["cublas_workspace"] + own["engine_workspace"]) * MIB,
        expert_workspace=own["expert_streams"] * own["engine_workspace"] * MIB,
        context=own["context"] * 1e9,
        collectives=own["collectives"] * 1e9,
        unused_share=own["unused_share"],
        expert_load=own["expert_load"],
        kept_free=own["kept_free"],
    )
