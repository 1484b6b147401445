"""Whatever a config.json says, it is a model or refused with a hint: it comes from
anywhere."""

from math import inf, nan
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from corral.catalog.model_config import model_of_config
from corral.catalog.model_families import FAMILIES
from corral.catalog.models import MOST, Model, ModelRefused, model_of_dimensions
from tests.catalog.test_model_config import DEEPSEEK, LLAMA, MIXTRAL

ODD: tuple[Any, ...] = (
    0, -1, 7, 10**6, 10**30, 10**400, 1.5, inf, nan, "", "many", "64", True, [], [1, 2], {},
    {"a": 1},
)  # fmt: skip
FIELDS = sorted(
    {*LLAMA, *MIXTRAL, *DEEPSEEK, "head_dim", "sliding_window", "layer_types", "mlp_only_layers",
     "word_embed_proj_dim", "attn_config", "expansion_ratio", "text_config", "vision_config",
     "use_sliding_window", "sliding_window_pattern", "multi_query", "interleave_moe_layer_step"}
    - {"model_type"}
)  # fmt: skip


@settings(max_examples=300, deadline=None)
@given(
    base=st.sampled_from([LLAMA, MIXTRAL, DEEPSEEK]),
    kind=st.none() | st.sampled_from(sorted(FAMILIES)),
    odd=st.dictionaries(
        st.sampled_from(FIELDS), st.sampled_from(ODD), min_size=1, max_size=3
    ),
)
@example(base=LLAMA, kind=None, odd={"head_dim": "many"})
@example(base=LLAMA, kind=None, odd={"num_attention_heads": 0})
@example(base=LLAMA, kind=None, odd={"num_key_value_heads": 7})
@example(base=LLAMA, kind="mpt", odd={"attn_config": [1, 2]})
def test_whatever_a_config_says_it_is_a_model_or_refused_with_a_hint(
    base: dict[str, Any], kind: str | None, odd: dict[str, Any]
) -> None:
    config = base | odd | ({"model_type": kind} if kind else {})
    found = read(config)
    if isinstance(found, ModelRefused):
        assert found.hint
        assert len(found.message) < 400
    else:
        assert 0 < float(found.parameters) < inf


def read(config: dict[str, Any]) -> Model | ModelRefused:
    try:
        return model_of_config(config)
    except ModelRefused as refused:
        return refused


@pytest.mark.parametrize(
    ("field", "value", "said"),
    [
        ("num_hidden_layers", 20_000, "from 1 to 10,000"),
        ("hidden_size", 10**30, "from 1 to 1,000,000,000"),
        ("vocab_size", 0, "vocab_size"),
        ("head_dim", "many", "cannot have 'many' as head_dim"),
    ],
)
def test_a_size_that_no_model_has_is_told_with_its_field(
    field: str, value: object, said: str
) -> None:
    with pytest.raises(ModelRefused) as refused:
        model_of_config(LLAMA | {field: value})
    assert said in f"{refused.value.message} {refused.value.hint}"


@pytest.mark.parametrize("said", [-1, 0])
def test_a_window_of_nothing_is_none(said: int) -> None:
    config = LLAMA | {"model_type": "mistral", "sliding_window": said}
    assert model_of_config(config).window == 0


@pytest.mark.parametrize(
    ("sizes", "hint"),
    [
        ({"heads": 30}, "heads=16"),
        ({"kv_heads": 7}, "kv_heads=4"),
        ({"layers": 10_001}, "layers from 1 to 10,000"),
        ({"vocab": MOST + 1}, "vocab from 1 to 1,000,000,000"),
        ({"ffn": -1}, "ffn from 0"),
    ],
)
def test_dimensions_that_cannot_be_are_told_with_the_nearest(
    sizes: dict[str, int], hint: str
) -> None:
    plain: dict[str, Any] = {"layers": 32, "hidden": 4096, "heads": 32, "vocab": 32_000}
    with pytest.raises(ModelRefused) as refused:
        model_of_dimensions(**(plain | sizes))
    assert hint in refused.value.hint
