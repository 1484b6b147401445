"""The model of a row: its dimensions, or the catalog's where these do not tell all."""

import pytest

from corral.catalog.model_names import model
from corral.plan.row_model import model_of_row
from corral.plan.rows import RowRefused

LLAMA = {
    "model": "Llama 3.1 8B",
    "params": "8030261248",
    "layers": "32",
    "hidden": "4096",
    "heads": "32",
    "kv_heads": "8",
    "ffn": "14336",
    "vocab": "128256",
}


def test_a_dense_model_is_what_its_row_says() -> None:
    told: list[str] = []
    one = model_of_row(LLAMA, told)
    assert one.parameters == 8_030_261_248
    assert told == []
    assert model_of_row(LLAMA | {"layers": "2"}, told).layers == 2


def test_a_model_with_experts_is_the_catalogs_with_the_rows_layers() -> None:
    row = {"layers": "61", "hidden": "7168", "heads": "128", "ffn": "2048", "ep": "64"}
    told: list[str] = []
    whole = model_of_row(row | {"model": "DeepSeekV3 (w/o MTP)"}, told)
    assert whole == model("deepseek-v3")
    assert told == ["deepseek-v3 as the catalog has it"]
    part = model_of_row(row | {"model": "DeepSeekV3", "layers": "2"}, told)
    assert (part.layers, part.moe_layers) == (2, 1)


def test_a_row_without_dimensions_has_the_catalogs() -> None:
    told: list[str] = []
    assert model_of_row({"model": "meta-llama/Llama-3.2-1B"}, told) == model("llama-3.2-1b")
    assert told


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        ({"model": "GPT 52B"}, "not said"),
        ({}, "not said"),
        ({"model": "flan-t5-xxl"}, "encoder"),
        (LLAMA | {"model": "Our 60B", "ep": "8"}, "experts"),
    ],
)
def test_what_nobody_knows_is_refused(row: dict[str, str], reason: str) -> None:
    with pytest.raises(RowRefused, match=reason):
        model_of_row(row, [])


def test_a_count_of_parameters_tells_the_form_of_the_mlp() -> None:
    row = {"layers": "32", "hidden": "4096", "heads": "32", "vocab": "32000"}
    told: list[str] = []
    assert model_of_row(row | {"params": "8.85e9"}, told).is_gated
    assert not model_of_row(row | {"params": "6.6e9"}, told).is_gated
    assert not model_of_row(row | {"model": "GPT 7B"}, told).is_gated
    assert model_of_row(row | {"model": "our own"}, told).is_gated
