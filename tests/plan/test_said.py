"""Models and precisions as people say them."""

import json

import pytest

from corral.catalog.model_names import model
from corral.catalog.models import ModelRefused
from corral.catalog.precisions import Precision
from corral.domain.errors import NotFound
from corral.plan.parse.models import model_said, precision_said

LLAMA = {
    "model_type": "llama", "num_hidden_layers": 32, "hidden_size": 4096, "vocab_size": 128256,
    "num_attention_heads": 32, "num_key_value_heads": 8, "intermediate_size": 14336,
    "tie_word_embeddings": False,
}  # fmt: skip
DIMENSIONS = "layers=32,hidden=4096,heads=32,kv_heads=8,ffn=14336,vocab=128256"


@pytest.mark.parametrize(
    "text", ["llama-3.1-8b", "meta-llama/Llama-3.1-8B", json.dumps(LLAMA), DIMENSIONS]
)
def test_one_model_said_in_any_way_has_the_same_parameters(text: str) -> None:
    assert (
        model_said(text).parameters == model("llama-3.1-8b").parameters == 8_030_261_248
    )


@pytest.mark.parametrize(
    ("text", "refused", "said"),
    [
        ("llama-3.1-9b", NotFound, "llama-3.1-8b"),
        ("{", ModelRefused, "not valid JSON"),
        (
            "layers=32,hiden=4096",
            ModelRefused,
            "did you mean hidden? write for example layers=32",
        ),
        ("layers=32,banana=4", ModelRefused, "write for example layers=32"),
        ("layers=32,hidden=many", ModelRefused, "'many'"),
        ("layers=32", ModelRefused, "are missing: hidden, heads, vocab"),
    ],
)
def test_what_is_no_model_is_told_with_the_nearest_way(
    text: str, refused: type[NotFound | ModelRefused], said: str
) -> None:
    with pytest.raises(refused) as told:
        model_said(text)
    assert said in told.value.message + told.value.hint


@pytest.mark.parametrize(
    ("text", "form"), [("BF16", "bf16"), ("nvfp4", "fp4"), ("half", "fp16")]
)
def test_a_precision_has_several_names(text: str, form: str) -> None:
    assert precision_said(text) == Precision(form)


def test_a_misspelt_precision_gets_the_nearest() -> None:
    with pytest.raises(NotFound) as told:
        precision_said("bf17")
    assert "bf16" in told.value.hint
