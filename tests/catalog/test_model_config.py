"""A config.json of Hugging Face makes the same model as the catalog has, or says what
it lacks."""

from dataclasses import replace
from typing import Any

import pytest

from corral.catalog.model_config import model_of_config
from corral.catalog.model_families import FAMILIES, REFUSED
from corral.catalog.model_names import model
from corral.catalog.models import Model, ModelRefused

LLAMA: dict[str, Any] = {
    "architectures": ["LlamaForCausalLM"],
    "attention_bias": False,
    "hidden_act": "silu",
    "hidden_size": 8192,
    "intermediate_size": 28672,
    "max_position_embeddings": 131072,
    "mlp_bias": False,
    "model_type": "llama",
    "num_attention_heads": 64,
    "num_hidden_layers": 80,
    "num_key_value_heads": 8,
    "rope_scaling": {"factor": 8.0, "rope_type": "llama3"},
    "tie_word_embeddings": False,
    "vocab_size": 128256,
}
MIXTRAL: dict[str, Any] = {
    "model_type": "mixtral",
    "hidden_size": 4096,
    "intermediate_size": 14336,
    "max_position_embeddings": 32768,
    "num_attention_heads": 32,
    "num_experts_per_tok": 2,
    "num_hidden_layers": 32,
    "num_key_value_heads": 8,
    "num_local_experts": 8,
    "sliding_window": None,
    "tie_word_embeddings": False,
    "vocab_size": 32000,
}
DEEPSEEK: dict[str, Any] = {
    "model_type": "deepseek_v3",
    "attention_bias": False,
    "first_k_dense_replace": 3,
    "hidden_size": 7168,
    "intermediate_size": 18432,
    "kv_lora_rank": 512,
    "max_position_embeddings": 163840,
    "moe_intermediate_size": 2048,
    "moe_layer_freq": 1,
    "n_group": 8,
    "n_routed_experts": 256,
    "n_shared_experts": 1,
    "num_attention_heads": 128,
    "num_experts_per_tok": 8,
    "num_hidden_layers": 61,
    "num_key_value_heads": 128,
    "num_nextn_predict_layers": 1,
    "q_lora_rank": 1536,
    "qk_nope_head_dim": 128,
    "qk_rope_head_dim": 64,
    "tie_word_embeddings": False,
    "topk_method": "noaux_tc",
    "v_head_dim": 128,
    "vocab_size": 129280,
    "topk_group": 4,
}
GPT_2: dict[str, Any] = {
    "model_type": "gpt2",
    "n_ctx": 1024,
    "n_embd": 1600,
    "n_head": 25,
    "n_inner": None,
    "n_layer": 48,
    "n_positions": 1024,
    "vocab_size": 50257,
}
GPT_OSS: dict[str, Any] = {
    "model_type": "gpt_oss",
    "attention_bias": True,
    "experts_per_token": 4,
    "head_dim": 64,
    "hidden_size": 2880,
    "intermediate_size": 2880,
    "layer_types": ["sliding_attention", "full_attention"] * 18,
    "max_position_embeddings": 131072,
    "num_attention_heads": 64,
    "num_experts_per_tok": 4,
    "num_hidden_layers": 36,
    "num_key_value_heads": 8,
    "num_local_experts": 128,
    "sliding_window": 128,
    "tie_word_embeddings": False,
    "vocab_size": 201088,
}
GEMMA_3: dict[str, Any] = {  # its classes fill in what is not here
    "architectures": ["Gemma3ForConditionalGeneration"],
    "model_type": "gemma3",
    "text_config": {
        "hidden_size": 2560,
        "intermediate_size": 10240,
        "max_position_embeddings": 131072,
        "model_type": "gemma3_text",
        "num_hidden_layers": 34,
        "sliding_window": 1024,
    },
    "vision_config": {"hidden_size": 1152, "num_hidden_layers": 27},
}
QWEN: dict[str, Any] = {
    "model_type": "qwen2",
    "hidden_size": 3584,
    "intermediate_size": 18944,
    "max_position_embeddings": 131072,
    "num_attention_heads": 28,
    "num_hidden_layers": 28,
    "num_key_value_heads": 4,
    "sliding_window": 131072,
    "tie_word_embeddings": False,
    "use_sliding_window": False,
    "vocab_size": 152064,
}


@pytest.mark.parametrize(
    ("config", "name"),
    [
        (LLAMA, "llama-3.1-70b"),
        (MIXTRAL, "mixtral-8x7b"),
        (DEEPSEEK, "deepseek-v3"),
        (GPT_2, "gpt-2-xl"),
        (GPT_OSS, "gpt-oss-120b"),
        (GEMMA_3, "gemma-3-4b"),
        (QWEN, "qwen-2.5-7b"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_config_makes_the_model_that_the_catalog_has(
    config: dict[str, Any], name: str
) -> None:
    known = model(name)
    found = replace(
        model_of_config(config, name), left_out=(), published=known.published
    )
    assert found == known


# llava-hf/llava-1.5-7b-hf and llava-v1.6-mistral-7b-hf: sizes that are usual for the
# text model are not repeated in them.
LLAVA: dict[str, Any] = {
    "architectures": ["LlavaForConditionalGeneration"],
    "model_type": "llava",
    "text_config": {
        "model_type": "llama",
        "max_position_embeddings": 4096,
        "vocab_size": 32064,
    },
    "vision_config": {
        "hidden_size": 1024,
        "intermediate_size": 4096,
        "model_type": "clip_vision_model",
        "num_hidden_layers": 24,
    },
}


def test_what_sees_is_told_to_be_left_out_with_about_its_size() -> None:
    # 24 layers x (4 x 1024 x 1024 + 2 x 1024 x 4096) = 24 x 12.58e6 = 0.30e9.
    found = model_of_config(LLAVA)
    assert found.left_out == ("vision tower (about 0.3 billion parameters)",)
    # Vicuna 7B: 6.74e9 with 32,000 words, and 2 x 64 x 4096 more.
    assert found.parameters == pytest.approx(6.739e9, rel=1e-3)
    assert found.context == 4096
    flat = {**LLAMA, "mm_vision_tower": "openai/clip-vit-large-patch14-336"}
    assert model_of_config(flat).left_out == ("vision tower",)
    assert model_of_config(LLAMA).left_out == ()


def test_windows_are_counted_by_layer() -> None:
    oss, gemma = model_of_config(GPT_OSS), model_of_config(GEMMA_3)
    assert (oss.window, oss.window_layers) == (128, 18)
    assert (gemma.window, gemma.window_layers) == (1024, 29)  # 34 less each sixth: 5
    assert model_of_config(QWEN).window_layers == 0


@pytest.mark.parametrize(
    "field", ["num_hidden_layers", "hidden_size", "num_attention_heads", "vocab_size"]
)
def test_a_field_that_is_missing_is_named(field: str) -> None:
    with pytest.raises(ModelRefused, match=f"no {field}"):
        model_of_config({key: value for key, value in LLAMA.items() if key != field})


def test_a_field_of_experts_that_is_missing_is_named() -> None:
    with pytest.raises(ModelRefused, match="no kv_lora_rank"):
        model_of_config(
            {key: value for key, value in DEEPSEEK.items() if key != "kv_lora_rank"}
        )


def test_a_field_that_is_no_number_is_named() -> None:
    with pytest.raises(ModelRefused, match="'80' as num_hidden_layers"):
        model_of_config(LLAMA | {"num_hidden_layers": "80"})


def test_an_unknown_type_is_refused_with_the_nearest() -> None:
    with pytest.raises(ModelRefused, match="lama") as refused:
        model_of_config(LLAMA | {"model_type": "lama"})
    assert "llama" in refused.value.hint


def test_a_config_without_type_is_refused() -> None:
    with pytest.raises(ModelRefused, match="no model_type"):
        model_of_config(
            {key: value for key, value in LLAMA.items() if key != "model_type"}
        )


@pytest.mark.parametrize("kind", REFUSED)
def test_what_is_no_plain_decoder_is_refused_with_its_reason(kind: str) -> None:
    with pytest.raises(ModelRefused, match=REFUSED[kind]):
        model_of_config(LLAMA | {"model_type": kind})


@pytest.mark.parametrize("kind", FAMILIES)
def test_a_config_of_each_family_can_be_read(kind: str) -> None:
    experts = {
        "num_local_experts": 8,
        "num_experts": 8,
        "n_routed_experts": 8,
        "moe_intermediate_size": 1024,
        "intermediate_size_mlp": 2048,
    }
    latent = {
        key: DEEPSEEK[key]
        for key in (
            "kv_lora_rank",
            "qk_rope_head_dim",
            "qk_nope_head_dim",
            "v_head_dim",
        )
    }
    config = MIXTRAL | experts | latent | {"model_type": kind, "alibi": True}
    one = model_of_config(config)
    assert isinstance(one, Model)
    assert 0 < one.active_parameters <= one.parameters


def test_more_layers_are_more_parameters_and_a_bias_adds_its_own() -> None:
    plain = model_of_config(LLAMA)
    assert (
        model_of_config(LLAMA | {"num_hidden_layers": 81}).parameters > plain.parameters
    )
    biased = model_of_config(LLAMA | {"attention_bias": True})
    # of 64 + 2 x 8 heads of 128, and of the 8192 that come out, in each of 80 layers
    assert biased.parameters - plain.parameters == 80 * (80 * 128 + 8192)


def test_embeddings_of_another_width_are_refused() -> None:
    with pytest.raises(ModelRefused, match="word_embed_proj_dim"):
        model_of_config(LLAMA | {"model_type": "opt", "word_embed_proj_dim": 512})


@pytest.mark.parametrize(
    ("method", "precision"), [("fp8", "fp8"), ("mxfp4", "fp4"), ("gptq", "")]
)
def test_the_precision_of_published_weights_is_read(
    method: str, precision: str
) -> None:
    config = {
        "model_type": "llama", "hidden_size": 64, "num_hidden_layers": 2, "vocab_size": 99,
        "num_attention_heads": 2, "intermediate_size": 128,
        "quantization_config": {"quant_method": method},
    }  # fmt: skip
    assert model_of_config(config).published == precision
