"""Models of the catalog, found by any name that people use for them."""

import re
from collections.abc import Mapping
from functools import cache
from typing import Final

from corral.catalog.facts import Fact, subject, table
from corral.catalog.model_families import REFUSED
from corral.catalog.models import PLAIN, Experts, Latent, Model, ModelRefused

SILENT: Final = re.compile(  # words for tuning, form or date, not for dimensions
    r"instruct|chat|hf|it|pt|base|meta|bf16|fp16|fp8|fp4|nvfp4|mxfp4|int8|int4|4bit|8bit|w[48]a(8|16)"
    r"|dynamic|gguf|awq|gptq|bnb|quantized|maxtext|thinking|v0\.1|[0-9]{4}"
)


@cache
def model(name: str) -> Model:
    """Return the model of that name: llama-3.1-70b, "Llama 3.1 70B" or
    meta-llama/Llama-3.1-70B-Instruct.

    Raises: NotFound, with the nearest name; ModelRefused, with the reason, for a kind
    of model that is not supported.
    """
    for name_word in _split_name_words(name):
        if name_word in REFUSED:
            raise ModelRefused(
                f"{name} is not supported: {REFUSED[name_word]}", hint=PLAIN
            )
    return _model_from_facts(
        subject("model", name, table("models"), aliases(), spelled, listed="models")
    )


def models() -> tuple[Model, ...]:
    """Return all models, in the order of the file."""
    return tuple(_model_from_facts(facts) for facts in table("models").values())


def aliases() -> dict[str, str]:
    """Map the other names of models, including their titles, to the catalog's names."""
    name_by_alias: dict[str, str] = {}
    for name, facts in table("models").items():
        alias_names = facts["aliases"].value.split(";") if "aliases" in facts else []
        name_by_alias |= dict.fromkeys((*alias_names, facts["title"].value), name)
    return name_by_alias


def _split_name_words(name: str) -> list[str]:
    own_words = re.sub(r"\(.*?\)", " ", name).rsplit("/", 1)[-1]
    return re.findall(r"[a-z0-9.+]+", own_words.lower().replace("\u00d7", "x"))


def spelled(name: str) -> str:
    """Return a model name without the words for its tuning, form or date."""
    name_words = _split_name_words(name)
    return "".join(
        name_word for name_word in name_words if not SILENT.fullmatch(name_word)
    ) or "".join(name_words)


def _model_from_facts(facts: Mapping[str, Fact]) -> Model:
    def number(quantity: str) -> int:
        return round(facts[quantity].number) if quantity in facts else 0

    def says(quantity: str) -> bool:
        return quantity in facts and facts[quantity].value == "yes"

    return Model(
        name=facts["title"].subject,
        layers=number("layers"),
        hidden=number("hidden"),
        heads=number("heads"),
        kv_heads=number("kv_heads"),
        head_dim=number("head_dim"),
        ffn=number("ffn"),
        vocab=number("vocab"),
        is_gated=says("gated"),
        is_tied=says("tied"),
        has_bias=says("biased"),
        positions=number("positions"),
        context=number("context"),
        window=number("window"),
        window_layers=number("window_layers"),
        latent=_latent_from_facts(facts),
        experts=_experts_from_facts(facts),
        layer_vectors=number("layer_vectors"),
        outer_vectors=number("outer_vectors"),
        published=facts["precision"].value if "precision" in facts else "",
    )


def _latent_from_facts(facts: Mapping[str, Fact]) -> Latent | None:
    if "latent_kv_rank" not in facts:
        return None
    latent_sizes = {
        quantity: round(facts[f"latent_{quantity}"].number)
        for quantity in ("kv_rank", "query_rank", "rope_dim", "value_dim")
    }
    return Latent(**latent_sizes)


def _experts_from_facts(facts: Mapping[str, Fact]) -> Experts | None:
    if "experts_count" not in facts:
        return None
    sizes = (
        *("count", "per_token", "ffn", "shared", "dense_layers", "every", "shared_ffn"),
        *("groups", "groups_per_token"),
    )
    expert_sizes = {
        size: round(facts[f"experts_{size}"].number)
        for size in sizes
        if f"experts_{size}" in facts
    }
    return Experts(**expert_sizes, has_bias="experts_biased" in facts)
