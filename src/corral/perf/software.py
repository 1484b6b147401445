"""Strengths and weaknesses of training libraries: catalog/data/software.csv."""

from dataclasses import dataclass
from functools import cache
from typing import Final

from corral.catalog.facts import table
from corral.domain.errors import NotFound

# Libraries that fuse only with torch.compile or Liger, and the bytes of one logit
# without it while the loss is computed: 16 bits, and in fp32 the copy, its softmax or
# its gradient.
EAGER: Final = ("pytorch", "torchtune")
EAGER_LOGIT_BYTES: Final = 12.0
DEFAULT: Final = "megatron-core"


@dataclass(frozen=True, slots=True, kw_only=True)
class Software:
    """Constants of a library, each with its source in the table.

    `elementwise`: bytes that its norms, activations and dropouts move, over those of
    fused kernels. `square`: bytes that attention moves for its square where it is not a
    flash kernel, over those of Megatron-LM of 2021 with dropout. `logit_bytes`: that
    the loss moves for each logit. `attention`: of its attention kernel's rate over the
    best of the architecture. `host_forward`, `host_backward`: seconds that Python and
    the driver need to launch one layer. `host_tensor`: more of it where layers are
    split, and `host_expert` where they have experts. `host_piece`: of each pass through
    the pieces of a pipeline, alongside its layers. `loader`: for which each micro batch
    waits for its data. `attention_flops`: the most that its attention kernel does on
    any GPU, before what an architecture holds; 0: no such limit. `gradient_bytes`: of
    one gradient on the wire. `selective`: share of a layer's forward pass that
    selective recomputation does again alongside attention. `*_hidden`: shares of a
    communication that run alongside computing; what runs next to it costs `slowdown` of
    its time all the same. `interleaves`: it splits pipelines into pieces by itself.
    `scatters`: tensor-parallel GPUs share what goes to the next stage. `step`: seconds
    that each step takes besides.
    """

    name: str
    elementwise: float
    square: float
    logit_bytes: float
    attention: float
    selective: float
    host_forward: float
    host_backward: float
    host_tensor: float
    host_expert: float
    host_piece: float
    loader: float
    attention_flops: float
    gradient_bytes: float
    tensor_hidden: float
    data_hidden: float
    pipeline_hidden: float
    slowdown: float
    interleaves: bool
    scatters: bool
    step: float


@cache
def software(name: str = DEFAULT) -> Software:
    """The library of that name; what it has no own value for is that of "any".

    Raises: NotFound, with the nearest name.
    """
    software_rows = table("software")
    if name not in software_rows:
        described = [
            software_name for software_name in software_rows if software_name != "any"
        ]
        raise NotFound(
            "training library", name, described, see="corral plan catalog software"
        )
    facts = {**software_rows["any"], **software_rows[name]}
    own_numbers = {quantity: fact.number for quantity, fact in facts.items()}
    return Software(
        name=name,
        elementwise=own_numbers["elementwise"],
        square=own_numbers["square"],
        logit_bytes=own_numbers["logit_bytes"],
        attention=own_numbers["attention"],
        selective=own_numbers["selective"],
        host_forward=own_numbers["host_forward"] * 1e-3,
        host_backward=own_numbers["host_backward"] * 1e-3,
        host_tensor=own_numbers["host_tensor"] * 1e-3,
        host_expert=own_numbers["host_expert"] * 1e-3,
        host_piece=own_numbers["host_piece"] * 1e-3,
        loader=own_numbers["loader"] * 1e-3,
        attention_flops=own_numbers["attention_flops"] * 1e12,
        gradient_bytes=own_numbers["gradient_bytes"],
        tensor_hidden=own_numbers["tensor_hidden"],
        data_hidden=own_numbers["data_hidden"],
        pipeline_hidden=own_numbers["pipeline_hidden"],
        slowdown=own_numbers["slowdown"],
        interleaves=own_numbers["interleaves"] > 0,
        scatters=own_numbers["scatters"] > 0,
        step=own_numbers["step"] * 1e-3,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Sustained:
    """Speed that an architecture holds for hours, beyond the length of a benchmark.

    `matmul`: over the rate of single products: at its power limit a GPU lowers its
    clock. `flops_per_watt`: the most that a GPU does for its rated power in 16 bits; 0:
    not known. `narrow_matmul`: the same at 8 bits or less, of kernels of training
    libraries. `flash_forward`, `flash_backward`: of fused attention kernels, over the
    dense peak. `skew`: what the slowest GPU costs, for each doubling beyond one domain.
    `host`: time that the processors alongside such GPUs need to launch what those of an
    H100's node launch in 1.
    """

    matmul: float
    flops_per_watt: float
    narrow_matmul: float
    flash_forward: float
    flash_backward: float
    skew: float
    host: float


@cache
def sustained(architecture: str) -> Sustained:
    """Return the sustained speed of the architecture; missing values are those of
    "any"."""
    sustained_rows = table("sustained")
    facts = {**sustained_rows["any"], **sustained_rows.get(architecture, {})}
    return Sustained(
        matmul=facts["matmul"].number,
        flops_per_watt=facts["flops_per_watt"].number * 1e9,
        narrow_matmul=facts["narrow_matmul"].number,
        flash_forward=facts["flash_forward"].number,
        flash_backward=facts["flash_backward"].number,
        skew=facts["skew"].number,
        host=facts["host"].number,
    )
