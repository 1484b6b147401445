"""The model of a row: its dimensions, or the catalog's where these do not tell all."""

import pytest

from corral.catalog.model_names import model
from corral.plan.rows.model import model_of_row, sequence_of
from corral.plan.rows.row import RowRefused

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
    assert told == ["deepseek-v3 as in the catalog"]
    part = model_of_row(row | {"model": "DeepSeekV3", "layers": "2"}, told)
    assert (part.layers, part.moe_layers) == (2, 1)


def test_a_row_without_dimensions_has_the_catalogs() -> None:
    told: list[str] = []
    assert model_of_row({"model": "meta-llama/Llama-3.2-1B"}, told) == model(
        "llama-3.2-1b"
    )
    assert told


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        ({"model": "Our 52B"}, "not given"),  # which may have experts
        ({"model": "Our own", "params": "nan"}, "not given"),
        ({}, "not given"),
        ({"model": "flan-t5-xxl"}, "encoder"),
        (LLAMA | {"model": "Our 60B", "ep": "8"}, "experts"),
    ],
)
def test_what_nobody_knows_is_refused(row: dict[str, str], reason: str) -> None:
    with pytest.raises(RowRefused, match=reason):
        model_of_row(row, [])


def test_a_plain_model_of_so_many_parameters_is_shaped_as_gpt_3() -> None:
    # (174e9 x 128 / 12) ** (1/3) = 12,290, the nearest multiple of 128 is 12,288;
    # (174e9 less an embedding of 51,200 x 12,288) / (12 x 12,288 ** 2) = 95.7 layers;
    # 12,288 / 128 = 96 heads
    for row in ({"model": "Our own", "params": "174e9"}, {"model": "GPT 174B"}):
        told: list[str] = []
        one = model_of_row(row, told)
        assert (one.layers, one.hidden, one.heads) == (96, 12_288, 96)
        assert "96 layers, 12288 wide, with 96 heads, for 1.74e+11 parameters" in told


def test_what_is_said_of_a_shape_is_kept() -> None:
    # (205e9 - 250,880 x 14,400) / (12 x 14,400 ** 2) = 80.9; of heads that 8 GPUs share
    # out, 120 of
    # 120 are nearer to 128 a head than 80 of 180
    row = {
        "model": "GPT",
        "params": "205e9",
        "hidden": "14400",
        "vocab": "250880",
        "tp": "8",
    }
    one = model_of_row(row, [])
    assert (one.layers, one.hidden, one.heads) == (81, 14_400, 120)
    assert model_of_row({**row, "layers": "70", "heads": "80"}, []).heads == 80


@pytest.mark.parametrize(
    ("row", "tokens"),
    [
        ({"seq_len": "4096"}, 4_096),
        ({"model": "Llama 3.1 70B"}, 8_192),  # it could do with 131,072
        ({"model": "Llama 2 70B"}, 4_096),
        ({"model": "GPT 52B", "params": "52e9"}, 2_048),
        ({"model": "Llama 3.1 8B", "notes": "short sequence"}, 2_048),
    ],
)
def test_a_sequence_is_as_long_as_is_said_or_usual(
    row: dict[str, str], tokens: int
) -> None:
    told: list[str] = []
    assert sequence_of(row, told) == tokens
    assert bool(told) == ("seq_len" not in row)


def test_a_count_of_parameters_tells_the_form_of_the_mlp() -> None:
    row = {"layers": "32", "hidden": "4096", "heads": "32", "vocab": "32000"}
    told: list[str] = []
    assert model_of_row(row | {"params": "8.85e9"}, told).is_gated
    assert not model_of_row(row | {"params": "6.6e9"}, told).is_gated
    assert not model_of_row(row | {"model": "GPT 7B"}, told).is_gated
    assert model_of_row(row | {"model": "our own"}, told).is_gated
