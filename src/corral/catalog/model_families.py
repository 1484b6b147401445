"""Properties of model families that their configurations do not state: norms, biases,
attention windows."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any, Final


class Windows(StrEnum):
    """Which layers have an attention window if the model's configuration states one."""

    NONE = "none"
    ALL = "all"
    HALF = "half"  # every second layer
    PATTERN = "pattern"  # all but each n-th, which the configuration says
    CHUNKS = "chunks"  # three of four attend within chunks


class QueryNorm(StrEnum):
    """How queries and keys are normalised: not at all, for each head separately, or
    over all heads."""

    NONE = "none"
    HEAD = "head"
    WHOLE = "whole"


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelFamily:
    """Meaning of a Hugging Face `model_type`.

    `norms`: number of norms in each layer; `norm_vectors`: vectors of a norm, 2 with a
    bias, 0 without weights. `defaults`: default values of its configuration class.
    """

    norms: int = 2
    norm_vectors: int = 1
    is_gated: bool = True
    qkv_bias: bool = False
    out_bias: bool = False
    mlp_bias: bool = False
    head_bias: bool = False
    embedding_norm: bool = False
    query_norm: QueryNorm = QueryNorm.NONE
    sinks: bool = False  # a learned number a head that attention may look at
    is_tied: bool = False
    # rows of a learned embedding besides the context
    positions_extra: int | None = None
    windows: Windows = Windows.NONE
    latent: bool = False
    expert_keys: Mapping[str, str] = field(default_factory=dict)
    defaults: Mapping[str, Any] = field(default_factory=dict)


_BIASED: Final = ModelFamily(
    norm_vectors=2, is_gated=False, qkv_bias=True, out_bias=True, mlp_bias=True
)
_MIXTRAL: Final = {"count": "num_local_experts", "per_token": "num_experts_per_tok"}
_QWEN: Final = {
    "count": "num_experts",
    "per_token": "num_experts_per_tok",
    "ffn": "moe_intermediate_size",
    "shared_ffn": "shared_expert_intermediate_size",
    "every": "decoder_sparse_step",
}
_DEEPSEEK: Final = {
    "count": "n_routed_experts",
    "per_token": "num_experts_per_tok",
    "ffn": "moe_intermediate_size",
    "shared": "n_shared_experts",
    "dense_layers": "first_k_dense_replace",
    "every": "moe_layer_freq",
    "groups": "n_group",
    "groups_per_token": "topk_group",
}
_LLAMA_4: Final = {
    "count": "num_local_experts",
    "per_token": "num_experts_per_tok",
    "shared_ffn": "intermediate_size",
    "every": "interleave_moe_layer_step",
}
_GEMMA_3: Final = {
    "num_attention_heads": 8,
    "num_key_value_heads": 4,
    "head_dim": 256,
    "vocab_size": 262208,
    "sliding_window_pattern": 6,
}

# Sources: modeling_*.py of the same names in huggingface/transformers 4.57;
# xai-org/grok-1.
FAMILIES: Final[Mapping[str, ModelFamily]] = {
    "llama": ModelFamily(),
    "mistral": ModelFamily(windows=Windows.ALL),
    "ministral": ModelFamily(windows=Windows.PATTERN),
    "mixtral": ModelFamily(windows=Windows.ALL, expert_keys=_MIXTRAL),
    "phimoe": ModelFamily(norm_vectors=2, windows=Windows.ALL, expert_keys=_MIXTRAL),
    "qwen2": ModelFamily(qkv_bias=True),
    "qwen2_moe": ModelFamily(qkv_bias=True, expert_keys=_QWEN),
    "qwen3": ModelFamily(query_norm=QueryNorm.HEAD),
    "qwen3_moe": ModelFamily(query_norm=QueryNorm.HEAD, expert_keys=_QWEN),
    "deepseek_v2": ModelFamily(latent=True, expert_keys=_DEEPSEEK),
    "deepseek_v3": ModelFamily(latent=True, expert_keys=_DEEPSEEK),
    "kimi_k2": ModelFamily(latent=True, expert_keys=_DEEPSEEK),
    "glm4_moe": ModelFamily(
        qkv_bias=True,
        query_norm=QueryNorm.HEAD,
        expert_keys=_DEEPSEEK,
        defaults={"use_qk_norm": False},
    ),
    "llama4_text": ModelFamily(windows=Windows.CHUNKS, expert_keys=_LLAMA_4),
    "gpt_oss": ModelFamily(
        qkv_bias=True,
        out_bias=True,
        sinks=True,
        windows=Windows.HALF,
        expert_keys=_MIXTRAL,
        defaults={"sliding_window": 128},
    ),
    "grok-1": ModelFamily(
        norms=4,
        is_tied=True,
        expert_keys={"count": "num_experts", "per_token": "num_experts_per_tok"},
    ),
    "olmoe": ModelFamily(
        query_norm=QueryNorm.WHOLE,
        expert_keys={"count": "num_experts", "per_token": "num_experts_per_tok"},
    ),
    "granitemoe": ModelFamily(is_tied=True, expert_keys=_MIXTRAL),
    "gpt2": replace(_BIASED, is_tied=True, positions_extra=0),
    "gpt_neox": _BIASED,
    "gpt_bigcode": replace(_BIASED, is_tied=True, positions_extra=0),
    "starcoder2": replace(_BIASED, is_tied=True, windows=Windows.ALL),
    "bloom": replace(_BIASED, is_tied=True, embedding_norm=True),
    "opt": replace(_BIASED, is_tied=True, positions_extra=2),
    "phi": replace(_BIASED, norms=1, head_bias=True),
    "gptj": ModelFamily(
        norms=1, norm_vectors=2, is_gated=False, mlp_bias=True, head_bias=True
    ),
    "gpt_neo": replace(
        _BIASED, qkv_bias=False, is_tied=True, positions_extra=0, windows=Windows.HALF
    ),
    "falcon": ModelFamily(norms=1, norm_vectors=2, is_gated=False, is_tied=True),
    "mpt": ModelFamily(is_gated=False, is_tied=True),
    "nemotron": ModelFamily(norm_vectors=2, is_gated=False),
    "cohere": ModelFamily(
        norms=1,
        is_tied=True,
        query_norm=QueryNorm.WHOLE,
        defaults={"use_qk_norm": False},
    ),
    "cohere2": ModelFamily(norms=1, is_tied=True, windows=Windows.PATTERN),
    "gemma": ModelFamily(is_tied=True),
    "gemma2": ModelFamily(norms=4, is_tied=True, windows=Windows.HALF),
    "gemma3_text": ModelFamily(
        norms=4,
        query_norm=QueryNorm.HEAD,
        is_tied=True,
        windows=Windows.PATTERN,
        defaults=_GEMMA_3,
    ),
    "phi3": ModelFamily(windows=Windows.ALL),
    "olmo": ModelFamily(norm_vectors=0),
    "olmo2": ModelFamily(query_norm=QueryNorm.WHOLE),
    "stablelm": ModelFamily(norm_vectors=2),
    "granite": ModelFamily(is_tied=True),
    "glm4": ModelFamily(norms=4, qkv_bias=True),
    "internlm2": ModelFamily(),
    "internlm3": ModelFamily(),
    "internlm": ModelFamily(qkv_bias=True, out_bias=True),
    "baichuan": ModelFamily(),
    "exaone4": ModelFamily(query_norm=QueryNorm.HEAD),
    "smollm3": ModelFamily(is_tied=True),
    "seed_oss": ModelFamily(qkv_bias=True),
    "ernie4_5": ModelFamily(is_tied=True),
}

REFUSED: Final[Mapping[str, str]] = {
    "t5": "it has an encoder and a decoder",
    "mt5": "it has an encoder and a decoder",
    "umt5": "it has an encoder and a decoder",
    "bart": "it has an encoder and a decoder",
    "whisper": "it has an encoder and a decoder",
    "bert": "it is an encoder, and writes no tokens",
    "roberta": "it is an encoder, and writes no tokens",
    "modernbert": "it is an encoder, and writes no tokens",
    "mamba": "it has state-space layers in the place of attention",
    "mamba2": "it has state-space layers in the place of attention",
    "falcon_mamba": "it has state-space layers in the place of attention",
    "jamba": "some of its layers are state-space layers",
    "bamba": "some of its layers are state-space layers",
    "zamba2": "some of its layers are state-space layers",
    "nemotron_h": "some of its layers are state-space layers",
    "granitemoehybrid": "some of its layers are state-space layers",
    "qwen3_next": "some of its layers have linear attention",
    "minimax": "some of its layers have linear attention",
    "rwkv": "it is recurrent and has no attention",
    "rwkv7": "it is recurrent and has no attention",
    "recurrent_gemma": "some of its layers are recurrent",
    "mllama": "some of its layers attend to images",
    "gemma3n_text": "its layers are nested and have embeddings of their own",
    "deci": "its layers differ from each other",
    "nemotron-nas": "its layers differ from each other",
    "phi3small": "its attention is sparse by blocks",
}
