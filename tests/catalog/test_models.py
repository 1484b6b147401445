"""Models of the catalog: their counts against what their makers publish, and their
names."""

import csv
import gzip
from pathlib import Path

import pytest

from corral.catalog.facts import table
from corral.catalog.model_names import aliases, model, models
from corral.catalog.models import Model, ModelRefused, model_of_dimensions
from corral.domain.errors import NotFound

DATA = Path(__file__).parents[2] / "validation" / "data"
TOTAL_ELSEWHERE = {  # a published total that counts something else, and by how much
    "llama-4-scout": (0.009, "with its vision tower of 0.87 B"),
    "grok-1": (0.006, "314 B is printed; its tensors come to 315.7 B"),
    "glm-4.5": (
        0.007,
        "without its embeddings, and with the layer that predicts several tokens",
    ),
    "glm-4.5-air": (
        0.009,
        "without its embeddings, and with the layer that predicts several tokens",
    ),
    "glm-130b": (0.011, "130 B is a round number; its matrices come to 128.7 B"),
}
ACTIVE_ELSEWHERE = {"grok-1": 0.04, "glm-4.5-air": 0.07, "glm-4.5": 0.03}


def published(name: str, quantity: str) -> float | None:
    facts = table("models")[name]
    return facts[quantity].number if quantity in facts else None


@pytest.mark.parametrize("one", models(), ids=lambda one: str(one.name))
def test_parameters_come_to_what_is_published(one: Model) -> None:
    total = published(one.name, "published_parameters")
    assert total is not None
    allowed = TOTAL_ELSEWHERE[one.name][0] if one.name in TOTAL_ELSEWHERE else 0.005
    assert one.parameters == pytest.approx(total, rel=allowed)


@pytest.mark.parametrize(
    "one", [one for one in models() if one.experts], ids=lambda one: str(one.name)
)
def test_active_parameters_come_to_what_is_published_with_or_without_the_input_embedding(
    one: Model,
) -> None:
    active = published(one.name, "published_active_parameters")
    assert active is not None
    off = min(
        abs(count / active - 1)
        for count in (
            one.active_parameters,
            one.active_parameters - one.vocab * one.hidden,
        )
    )
    assert off <= ACTIVE_ELSEWHERE.get(one.name, 0.025)


def test_a_llama_counted_by_hand() -> None:
    # 8B: 32 layers of 2 x 4096 x 4096 (q, o) + 2 x 4096 x 1024 (k, v) + 3 x 4096 x
    # 14336 (MLP) + 2 x 4096 (norms) = 218,112,000; 128,256 x 4096 twice =
    # 1,050,673,152; a last norm of 4,096
    assert 32 * 218_112_000 + 1_050_673_152 + 4_096 == 8_030_261_248
    assert model("llama-3.1-8b").parameters == 8_030_261_248
    assert model("llama-3.1-70b").parameters == 70_553_706_496
    assert model("llama-3.1-405b").parameters == 405_853_388_800


def test_a_mixture_counted_by_hand() -> None:
    # 8x7B, a layer: attention 2 x 4096 x 4096 + 2 x 4096 x 1024 = 41,943,040; a router
    # of
    # 4096 x 8 = 32,768; norms 8,192; 8 experts of 3 x 4096 x 14336 = 176,160,768
    each = 41_943_040 + 32_768 + 8_192
    outside = 2 * 32_000 * 4_096 + 4_096
    one = model("mixtral-8x7b")
    assert one.parameters == 32 * (each + 8 * 176_160_768) + outside == 46_702_792_704
    assert (
        one.active_parameters
        == 32 * (each + 2 * 176_160_768) + outside
        == 12_879_925_248
    )


def test_latent_attention_counted_by_hand() -> None:
    # DeepSeek V3, a layer: queries 1536 x (7168 + 128 x 192), keys and values down 7168
    # x 576 and up 512 x 128 x 256, out 128 x 128 x 7168
    by_hand = 1_536 * (7_168 + 24_576) + 7_168 * 576 + 512 * 128 * 256 + 16_384 * 7_168
    one = model("deepseek-v3")
    assert one.attention_parameters == by_hand == 187_105_280
    assert one.moe_layers == 58


def test_every_second_layer_of_maverick_has_experts() -> None:
    assert model("llama-4-maverick").moe_layers == 24
    assert model("llama-4-scout").moe_layers == 48


@pytest.mark.parametrize(
    ("spelling", "name"),
    [
        ("meta-llama/Llama-3.1-70B", "llama-3.1-70b"),
        ("llama 3.1 70b", "llama-3.1-70b"),
        ("meta-llama/Meta-Llama-3-8B-Instruct", "llama-3-8b"),
        ("LLAMA3.1_405B", "llama-3.1-405b"),
        ("Llama-2-7b-chat-hf", "llama-2-7b"),
        ("Qwen/Qwen2.5-7B-Instruct", "qwen-2.5-7b"),
        ("Qwen3_235B_a22B (tokendrop)", "qwen-3-235b-a22b"),
        ("Qwen3-30B-A3B-Instruct-2507", "qwen-3-30b-a3b"),
        ("mistralai/Mixtral-8x7B-Instruct-v0.1", "mixtral-8x7b"),
        ("Mixtral 8\u00d722B", "mixtral-8x22b"),
        ("mistralai/Mistral-Nemo-Instruct-2407", "mistral-nemo-12b"),
        ("Mistral-7B-Instruct-v0.3", "mistral-7b-v0.3"),
        ("DeepSeekV3 (w/o MTP)", "deepseek-v3"),
        ("deepseek-ai/DeepSeek-R1-0528", "deepseek-r1"),
        ("DeepSeek-V3/R1", "deepseek-r1"),
        ("GPT-3", "gpt-3-175b"),
        ("EleutherAI/gpt-neox-20b", "gpt-neox-20b"),
        ("google/gemma-3-27b-it", "gemma-3-27b"),
        ("openai/gpt-oss-120b", "gpt-oss-120b"),
        ("microsoft/Phi-3-mini-4k-instruct", "phi-3-mini"),
        ("RedHatAI/Llama-4-Scout-17B-16E-Instruct-FP8-dynamic", "llama-4-scout"),
        ("xai-org/grok-1", "grok-1"),
    ],
)
def test_a_model_is_found_by_any_usual_spelling(spelling: str, name: str) -> None:
    assert model(spelling).name == name


def test_no_alias_is_the_name_of_another() -> None:
    for alias, own in aliases().items():
        assert model(alias).name == own
    for one in models():
        assert model(one.name) == one


def test_each_model_of_the_measured_inference_rows_is_known_or_has_its_dimensions() -> (
    None
):
    with gzip.open(DATA / "inference.csv.gz", "rt", encoding="utf-8") as file:
        named = {row["model"]: row["layers"] for row in csv.DictReader(file)}
    unknown = set()
    for name in named:
        try:
            model(name)
        except NotFound:
            unknown.add(name)
    assert unknown == {"GPT-20B", "GPT-89B", "GPT-350M"}
    assert all(named[name] for name in unknown)


def test_a_misspelt_model_gets_the_nearest_name() -> None:
    with pytest.raises(NotFound) as refused:
        model("lama-3.1-70b")
    assert "llama-3.1-70b" in refused.value.hint


def test_what_is_no_decoder_of_attention_is_refused_with_the_reason() -> None:
    with pytest.raises(ModelRefused, match="encoder"):
        model("google/flan-t5-xxl")
    with pytest.raises(ModelRefused, match="state-space"):
        model("state-spaces/mamba-2.8b")


def test_dimensions_alone_make_a_model() -> None:
    gpt = model_of_dimensions(
        layers=96, hidden=12288, heads=96, vocab=51200, positions=2048
    )
    assert gpt.parameters == pytest.approx(174.6e9, rel=0.001)
    assert not gpt.is_gated
    assert gpt.is_tied
    llama = model_of_dimensions(
        layers=32, hidden=4096, heads=32, kv_heads=8, ffn=14336, vocab=128256
    )
    assert llama.parameters == 8_030_261_248


def test_the_form_of_an_mlp_is_found_by_the_count_of_parameters() -> None:
    # an MLP of four times the hidden size is taken for one without gate, unless the
    # count says otherwise: 32 x 3 x 4096 x 16384 and not 2 x
    gated = model_of_dimensions(
        layers=32, hidden=4096, heads=32, vocab=32000, parameters=8.85e9
    )
    assert gated.is_gated
    plain = model_of_dimensions(
        layers=32, hidden=4096, heads=32, vocab=32000, parameters=6.6e9
    )
    assert not plain.is_gated


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ({"layers": 0}, "layers"),
        ({"heads": 7}, "hidden=64 is not a multiple of heads=7"),
        ({"kv_heads": 3}, "heads=8 is not a multiple of kv_heads=3"),
    ],
)
def test_dimensions_that_do_not_fit_are_refused(
    given: dict[str, int], reason: str
) -> None:
    sizes = {"layers": 2, "hidden": 64, "heads": 8, "vocab": 100} | given
    with pytest.raises(ModelRefused, match=reason):
        model_of_dimensions(**sizes)  # type: ignore[arg-type]
