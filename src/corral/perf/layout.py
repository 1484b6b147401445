"""Layout of a training run over GPUs, and the definition of one step."""

from dataclasses import dataclass
from enum import StrEnum

from corral.catalog.models import Model
from corral.catalog.precisions import Precision


class Shard(StrEnum):
    """What is sharded over data-parallel GPUs: the stages of ZeRO, arXiv:1910.02054."""

    NONE = "none"
    OPTIMIZER = "optimizer"  # ZeRO-1, Megatron's distributed optimizer
    GRADIENTS = "gradients"  # ZeRO-2, FSDP's SHARD_GRAD_OP
    PARAMETERS = "parameters"  # ZeRO-3, FSDP's FULL_SHARD


class Recompute(StrEnum):
    """What the backward pass computes again instead of keeping it: arXiv:2205.05198,
    section 4."""

    NONE = "none"
    SELECTIVE = "selective"  # the core of attention; a flash kernel does so by itself
    # all but attention and every second product: torchtitan's selective
    ALTERNATE = "alternate"
    FULL = "full"  # each layer, from its input


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainLayout:
    """Layout on `data` x `tensor` x `pipeline` x `context` GPUs. Experts are
    distributed over `expert` of the GPUs that share a stage: `data` x `context` GPUs,
    times `tensor` if `expert_tensor` is 1.

    `interleave`: number of pipeline pieces on each GPU. `micro_batch`: sequences in one
    pass. `first_layers`, `last_layers`: layers of the first and the last stage; 0 if
    these stages have as many as the others. `replicas`: copies of the sharded state:
    HSDP, several instances of the distributed optimizer.
    """

    data: int = 1
    tensor: int = 1
    pipeline: int = 1
    context: int = 1
    expert: int = 1
    expert_tensor: int = 1
    interleave: int = 1
    micro_batch: int = 1
    shard: Shard = Shard.NONE
    sequence_parallel: bool = False
    recompute: Recompute = Recompute.NONE
    first_layers: int = 0
    last_layers: int = 0
    replicas: int = 1

    def __post_init__(self) -> None:
        sizes = (self.data, self.tensor, self.pipeline, self.context, self.expert)
        if (
            min(
                *sizes,
                self.expert_tensor,
                self.interleave,
                self.micro_batch,
                self.replicas,
            )
            < 1
        ):
            raise ValueError(f"each part of a layout must be at least 1: {self}")

    @property
    def gpus(self) -> int:
        return self.data * self.tensor * self.pipeline * self.context


@dataclass(frozen=True, slots=True, kw_only=True)
class BytesPerParameter:
    """Bytes that a run keeps for each parameter. The default is mixed precision with
    Adam as in Megatron: 18 bytes a parameter, of which the optimizer has 12
    (arXiv:2205.05198, section 5)."""

    weight: float = 2.0
    gradient: float = 4.0
    optimizer: float = 12.0  # fp32 master weight and two moments


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainStep:
    """One optimizer step: `global_batch` sequences of `sequence` tokens.

    Args:
        precision: of the matrix products; activations are kept in 2 bytes unless it is
            fp32.
        has_flash: attention keeps nothing quadratic in the sequence.
        dropout: dropout masks are kept.
        vocab_multiple: the vocabulary is padded to a multiple of this many rows for
            each tensor-parallel GPU.
        logit_bytes: bytes of one logit in the computation of the loss: 2 unconverted, 4
            in fp32.
        ahead: layers that predict a further token ahead, each with its own logits
            (multi-token prediction: arXiv:2412.19437, section 2.2).
        fused: norms and gates are one kernel each (Transformer Engine, torch.compile,
            Liger); otherwise each keeps the values between its operations.
        grouped_experts: a GPU's experts are multiplied in parallel, not one after
            another.
    """

    model: Model
    sequence: int
    global_batch: int
    precision: Precision = Precision.BF16
    state: BytesPerParameter = BytesPerParameter()
    has_flash: bool = True
    dropout: bool = False
    vocab_multiple: int = 128
    logit_bytes: float = 6.0
    ahead: int = 0
    fused: bool = True
    grouped_experts: bool = True

    def micro_batches(self, layout: TrainLayout) -> int:
        """Return the number of micro batches that pass through the pipeline in one
        step.

        Raises: ValueError if the batch cannot be divided evenly.
        """
        pass_sequences = layout.data * layout.micro_batch
        if self.global_batch % pass_sequences:
            raise ValueError(
                f"a batch of {self.global_batch} is not a multiple of {layout.data} "
                f"data-parallel GPUs with {layout.micro_batch} sequences each"
            )
        return self.global_batch // pass_sequences

    @property
    def tokens(self) -> int:
        return self.sequence * self.global_batch
