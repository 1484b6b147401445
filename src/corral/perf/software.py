"""Performance constants of training libraries: catalog/data/software.csv."""

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
    """Performance constants of a training library, each with its source in the table.

    Args:
        elementwise: bytes that its norms, activations and dropouts move, relative to
            fused kernels.
        square: bytes that attention without a flash kernel moves for its scores,
            relative to Megatron-LM of 2021 with dropout.
        logit_bytes: bytes that the loss moves for each logit.
        attention: rate of its attention kernel relative to the best kernel of the GPU
            architecture.
        host_forward, host_backward: seconds that Python and the driver need to launch
            one layer.
        host_tensor: further seconds if layers are split.
        host_expert: further seconds if layers have experts.
        host_piece: seconds of each pass through the pieces of a pipeline, in addition
            to its layers.
        loader: seconds for which each micro batch waits for its data.
        attention_flops: the most that its attention kernel computes on any GPU, before
            the limit of the architecture; 0: no such limit.
        gradient_bytes: bytes of one gradient on the network.
        selective: share of a layer's forward pass that selective recomputation repeats
            in addition to attention.
        *_hidden: shares of a kind of communication that overlap with computation.
        slowdown: share of the time of overlapped communication that still adds to the
            step.
        interleaves: the library splits pipelines into pieces by default.
        scatters: tensor-parallel GPUs divide the data that they send to the next stage.
        step: further seconds of each step.
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
    """Return the library of that name; values that it lacks are taken from the row
    "any".

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
    """Speed that a GPU architecture sustains for hours, longer than a benchmark runs.

    Args:
        matmul: rate of matrix products in 16 bits over hours, relative to their rate in
            a short benchmark. It is lower because a GPU lowers its clock at its power
            limit.
        flops_per_watt: upper limit of the FLOP/s in 16 bits for each watt of the GPU's
            rated power; 0: not known.
        narrow_matmul: as `matmul`, for matrix products in 8 bits or less in training
            libraries.
        flash_forward, flash_backward: rates of fused attention kernels relative to the
            dense peak.
        skew: share of the time that is lost to the slowest GPU, for each doubling of
            the number of GPUs beyond one NVLink domain.
        host: time that the CPUs of a node with such GPUs need to launch kernels,
            relative to a node with H100s.
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
    """Return the sustained speed of the architecture; missing values are taken from the
    row "any"."""
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
