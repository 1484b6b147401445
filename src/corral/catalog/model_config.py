"""Conversion of a Hugging Face config.json into a Model, without I/O: the input is a
mapping."""

from collections.abc import Mapping
from dataclasses import replace
from difflib import get_close_matches
from typing import Any, Final

from corral.catalog.model_families import (
    FAMILIES,
    REFUSED,
    ModelFamily,
    QueryNorm,
    Windows,
)
from corral.catalog.models import (
    MOST,
    MOST_LAYERS,
    PLAIN,
    Experts,
    Latent,
    Model,
    ModelRefused,
)

LAYERS: Final = ("num_hidden_layers", "n_layer", "num_layers", "n_layers")
HIDDEN: Final = ("hidden_size", "n_embd", "d_model", "n_embed")
HEADS: Final = ("num_attention_heads", "n_head", "n_heads", "num_heads")
KV_HEADS: Final = ("num_key_value_heads", "num_kv_heads", "n_head_kv")
FFN: Final = ("intermediate_size", "n_inner", "ffn_dim", "ffn_hidden_size")
VOCAB: Final = ("vocab_size", "padded_vocab_size")
CONTEXT: Final = (
    "max_position_embeddings",
    "n_positions",
    "max_seq_len",
    "seq_length",
    "n_ctx",
)
TEXT: Final = ("text_config", "llm_config", "language_config")  # of one that sees, too
# Precisions by `quant_method`; other methods have bits of their own.
QUANTIZED: Final = {"fp8": "fp8", "mxfp4": "fp4"}
# What turns pictures and sound into tokens, by the field that describes it.
TOWERS: Final = {
    "vision_config": "vision tower",
    "visual": "vision tower",
    "vision_tower": "vision tower",
    "mm_vision_tower": "vision tower",
    "audio_config": "audio tower",
    "speech_config": "audio tower",
}
# What a configuration inside another does not repeat: defaults of LlamaConfig and
# MistralConfig.
NESTED: Final[Mapping[str, Mapping[str, Any]]] = {
    "llama": {
        "hidden_size": 4096,
        "intermediate_size": 11008,
        "num_hidden_layers": 32,
        "num_attention_heads": 32,
        "vocab_size": 32000,
        "max_position_embeddings": 2048,
    },
    "mistral": {
        "hidden_size": 4096,
        "intermediate_size": 14336,
        "num_hidden_layers": 32,
        "num_attention_heads": 32,
        "num_key_value_heads": 8,
        "vocab_size": 32000,
        "max_position_embeddings": 131072,
    },
}


class Config:
    """A config.json whose missing values are the defaults of its model family."""

    def __init__(self, given: Mapping[str, Any], family: ModelFamily) -> None:
        self._given = {
            **family.defaults,
            **{k: v for k, v in given.items() if v is not None},
        }

    def get(self, *names: str, default: Any = None) -> Any:
        return next(
            (self._given[name] for name in names if name in self._given), default
        )

    def number(
        self, *names: str, default: int | None = None, least: int = 0, most: int = MOST
    ) -> int:
        """Return a whole number of the configuration, found by the first of these field
        names that it has.

        Raises: ModelRefused, with the field, if it is missing and has no default, or is
        not a possible size of a model.
        """
        value = self.get(*names, default=default)
        is_whole = isinstance(value, int) and not isinstance(value, bool)
        if not is_whole or not least <= value <= most:
            complaint = (
                "has no"
                if value is None
                else f"cannot have {_truncate_text(repr(value), 40)} as"
            )
            raise ModelRefused(
                f"the model's configuration {complaint} {names[0]}",
                hint=f"set {' or '.join(names)} to a whole number from {least} to {most:,}",
            )
        return int(value)


def model_of_config(config: Mapping[str, Any], name: str = "") -> Model:
    """Return the model that a Hugging Face config.json describes. Of a model with image
    or sound input, only the language model is described, without its encoders.

    Raises: ModelRefused, with the missing field, or with the reason why such a model is
    not supported.
    Source: configuration_*.py and modeling_*.py of huggingface/transformers.
    """
    try:
        return _model_from_config(config, name)
    except (
        ValueError,
        TypeError,
        ArithmeticError,
        LookupError,
        AttributeError,
    ) as wrong:
        message = (
            "the model's configuration contains an impossible value: "
            f"{_truncate_text(str(wrong), 200)}"
        )
        raise ModelRefused(
            message, hint="give the unchanged config.json of the model"
        ) from wrong


def _model_from_config(config: Mapping[str, Any], name: str) -> Model:
    kind = str(config.get("model_type", ""))
    if kind not in FAMILIES and kind not in REFUSED:
        for key in TEXT:
            if isinstance(inner := config.get(key), Mapping):
                usual = NESTED.get(str(inner.get("model_type")), {})
                text_model = model_of_config(
                    {"model_type": f"{kind}_text", **usual, **inner}, name or kind
                )
                return replace(text_model, left_out=_describe_encoders(config))
    family = _find_model_family(kind)
    config_reader = Config(config, family)
    _refuse_what_is_not_plain(config_reader)
    hidden, heads = (
        config_reader.number(*HIDDEN, least=1),
        config_reader.number(*HEADS, least=1),
    )
    layers = config_reader.number(*LAYERS, least=1, most=MOST_LAYERS)
    context = config_reader.number(*CONTEXT, default=0)
    latent = _read_latent_attention(config_reader) if family.latent else None
    head_dim = latent[1] if latent else _head_dim(config_reader, hidden, heads)
    experts = _read_experts(config_reader, family, layers)
    window, window_layers = _read_window_layers(config_reader, family, layers)
    base = Model(
        name=name or str(config.get("_name_or_path") or kind),
        layers=layers,
        hidden=hidden,
        heads=heads,
        kv_heads=_kv_heads(config_reader, kind, heads),
        head_dim=head_dim,
        ffn=_read_ffn_size(config_reader, kind, hidden),
        vocab=config_reader.number(*VOCAB, least=1),
        is_gated=family.is_gated,
        is_tied=bool(config_reader.get("tie_word_embeddings", default=family.is_tied)),
        has_bias=family.qkv_bias and family.mlp_bias,
        positions=_positions(config_reader, kind, family, context),
        context=context,
        window=window,
        window_layers=window_layers,
        latent=latent[0] if latent else None,
        experts=experts,
        left_out=_describe_encoders(config),
        published=_published(config),
    )
    return replace(
        base,
        layer_vectors=_layer_vectors(base, kind, family, config_reader),
        outer_vectors=_outer_vectors(base, family),
    )


def _published(config: Mapping[str, Any]) -> str:
    """Return the precision to which the published weights are quantised; "" for 16
    bits."""
    quantized = config.get("quantization_config")
    method = quantized.get("quant_method") if isinstance(quantized, Mapping) else None
    return QUANTIZED.get(str(method), "")


def _truncate_text(text: str, most: int) -> str:
    return text if len(text) <= most else text[:most] + "..."


def _describe_encoders(config: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the encoders of images or sound, each with its number of parameters if its
    sizes are given."""
    towers: dict[str, str] = {}
    for key, encoder_name in TOWERS.items():
        if not (tower := config.get(key)) or encoder_name in towers:
            continue
        billions = _tower_parameters(tower) / 1e9 if isinstance(tower, Mapping) else 0.0
        towers[encoder_name] = (
            f"{encoder_name} (about {billions:.1f} billion parameters)"
            if billions
            else encoder_name
        )
    return tuple(towers.values())


def _tower_parameters(said: Mapping[str, Any]) -> int:
    """Return the approximate number of parameters of an encoder: four attention
    matrices and two MLP matrices in each layer. 0 if a size is missing."""
    names = ("num_hidden_layers", "hidden_size", "intermediate_size")
    layers, hidden, ffn = (said.get(name) or 0 for name in names)
    if not all(isinstance(size, int) and size > 0 for size in (layers, hidden, ffn)):
        return 0
    return int(layers * (4 * hidden**2 + 2 * hidden * ffn))


def _find_model_family(kind: str) -> ModelFamily:
    if kind in FAMILIES:
        return FAMILIES[kind]
    if kind in REFUSED:
        raise ModelRefused(
            f"a model of the type {kind} is not supported: {REFUSED[kind]}",
            hint=PLAIN,
        )
    if not kind:
        raise ModelRefused(
            "the model's configuration has no model_type",
            hint="add for example model_type: llama",
        )
    near = get_close_matches(kind, FAMILIES, n=1)
    raise ModelRefused(
        f"a model of the type {kind} is not known",
        hint=f"set model_type to {near[0] if near else 'llama'} if the model is built like it",
    )


def _refuse_what_is_not_plain(read: Config) -> None:
    if read.get("is_encoder_decoder", default=False):
        raise ModelRefused(
            "a model with an encoder and a decoder is not supported", hint=PLAIN
        )
    if (inner := read.get("word_embed_proj_dim")) not in (None, read.get(*HIDDEN)):
        raise ModelRefused(
            f"word_embed_proj_dim is {_truncate_text(repr(inner), 40)}: embeddings with "
            "another width than "
            "the layers are not supported",
            hint=PLAIN,
        )


def _head_dim(read: Config, hidden: int, heads: int) -> int:
    names = ("head_dim", "attention_head_size")
    if read.get(*names) is not None:
        return read.number(*names, least=1)
    if hidden % heads:
        raise ModelRefused(
            f"the model's configuration has no head_dim, and its width {hidden} is not a "
            f"multiple of its {heads} heads",
            hint="add head_dim",
        )
    return hidden // heads


def _kv_heads(read: Config, kind: str, heads: int) -> int:
    if kind == "gpt_bigcode":
        return 1 if read.get("multi_query", default=True) else heads
    if kind == "falcon" and not read.get("new_decoder_architecture", default=False):
        return 1 if read.get("multi_query", default=True) else heads
    attention = read.get("attn_config", default={})
    if isinstance(attention, Mapping) and "kv_n_heads" in attention:
        return int(attention["kv_n_heads"])
    return read.number(*KV_HEADS, default=heads, least=1)


def _read_ffn_size(read: Config, kind: str, hidden: int) -> int:
    if kind == "mpt":
        return hidden * int(read.get("expansion_ratio", default=4))
    if kind == "llama4_text" and read.get("interleave_moe_layer_step", default=1) > 1:
        return read.number("intermediate_size_mlp")
    fourfold = {"gpt2", "gptj", "gpt_neo", "gpt_bigcode", "bloom", "falcon"}
    return read.number(*FFN, default=4 * hidden if kind in fourfold else None)


def _positions(read: Config, kind: str, family: ModelFamily, context: int) -> int:
    if kind == "mpt":
        alibi = read.get("attn_config", default={}).get("alibi", False)
        return 0 if alibi or not read.get("learned_pos_emb", default=True) else context
    if family.positions_extra is None:
        return 0
    return context + family.positions_extra


def _read_latent_attention(read: Config) -> tuple[Latent, int]:
    latent = Latent(
        kv_rank=read.number("kv_lora_rank"),
        query_rank=read.number("q_lora_rank", default=0),
        rope_dim=read.number("qk_rope_head_dim"),
        value_dim=read.number("v_head_dim"),
    )
    return latent, read.number("qk_nope_head_dim")


def _read_experts(read: Config, family: ModelFamily, layers: int) -> Experts | None:
    keys = family.expert_keys
    if not keys:
        return None
    count = read.number(keys["count"])
    if count <= 1:
        return None
    layer_interval = read.number(keys["every"], default=1) if "every" in keys else 1
    return Experts(
        count=count,
        per_token=read.number(keys["per_token"], "experts_per_token"),
        ffn=read.number(keys.get("ffn", "intermediate_size"), "intermediate_size"),
        shared=read.number(keys["shared"], default=0) if "shared" in keys else 0,
        dense_layers=_dense_layers(read, keys, layers),
        every=layer_interval,
        shared_ffn=read.number(keys["shared_ffn"], default=0)
        if "shared_ffn" in keys
        else 0,
        has_bias=family.sinks,
        groups=read.number(keys["groups"], default=1) if "groups" in keys else 1,
        groups_per_token=read.number(keys["groups_per_token"], default=1)
        if "groups" in keys
        else 1,
    )


def _dense_layers(read: Config, keys: Mapping[str, str], layers: int) -> int:
    if "dense_layers" in keys:
        return read.number(keys["dense_layers"], default=0)
    return min(len(read.get("mlp_only_layers", default=())), layers)


def _read_window_layers(
    read: Config, family: ModelFamily, layers: int
) -> tuple[int, int]:
    """Return (attention window in tokens, number of layers that have it); zeros without
    a window."""
    if family.windows is Windows.CHUNKS:
        chunk = read.number("attention_chunk_size", default=0)
        return chunk, layers * 3 // 4 if chunk else 0
    window = read.number("sliding_window", "window_size", default=0, least=-1)
    if window < 1 or family.windows is Windows.NONE:
        return 0, 0
    if read.get("use_sliding_window", default=True) is False:
        return 0, 0
    if isinstance(types := read.get("layer_types"), list):
        return window, sum("sliding" in str(kind) for kind in types)
    if family.windows is Windows.ALL:
        return window, layers
    nth = read.number(
        "sliding_window_pattern", "_sliding_window_pattern", default=2, least=1
    )
    return window, layers - layers // nth


def _layer_vectors(model: Model, kind: str, family: ModelFamily, read: Config) -> int:
    """Return the number of parameters in the norms and biases of one layer."""
    queries, keys = model.heads * model.head_dim, model.kv_heads * model.head_dim
    norms = _count_layer_norms(kind, family, read) * family.norm_vectors * model.hidden
    norms += _query_norms(model, family, read)
    bias_setting = read.get("attention_bias", "use_qkv_bias", "bias")
    qkv = family.qkv_bias if bias_setting is None else bool(bias_setting)
    has_output_bias = (
        family.out_bias
        if bias_setting is None
        else qkv and (family.out_bias or not family.qkv_bias)
    )
    mlp = read.get(
        "mlp_bias", "bias" if kind == "falcon" else "mlp_bias", default=family.mlp_bias
    )
    biases = (queries + 2 * keys) * qkv + model.hidden * has_output_bias
    biases += ((2 if family.is_gated else 1) * model.ffn + model.hidden) * bool(mlp)
    if model.experts and (family.sinks or read.get("topk_method") == "noaux_tc"):
        biases += model.experts.count  # of the router
    gate = model.hidden if kind == "qwen2_moe" else 0  # of the shared expert
    return norms + biases + gate + (model.heads if family.sinks else 0)


def _count_layer_norms(kind: str, family: ModelFamily, read: Config) -> int:
    if kind == "falcon" and read.get("new_decoder_architecture", default=False):
        return read.number("num_ln_in_parallel_attn", default=2)
    if kind == "falcon" and not read.get("parallel_attn", default=True):
        return 2
    return family.norms


def _query_norms(model: Model, family: ModelFamily, read: Config) -> int:
    if model.latent is not None:
        return model.latent.kv_rank + model.latent.query_rank
    if not read.get("use_qk_norm", default=True):
        return 0
    heads = {
        QueryNorm.NONE: 0,
        QueryNorm.HEAD: 2,
        QueryNorm.WHOLE: model.heads + model.kv_heads,
    }
    return heads[family.query_norm] * model.head_dim


def _outer_vectors(model: Model, family: ModelFamily) -> int:
    norms = (2 if family.embedding_norm else 1) * family.norm_vectors * model.hidden
    return norms + (model.vocab if family.head_bias else 0)
