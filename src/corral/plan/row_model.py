"""The model of a row of a measured table: by its dimensions, or by its name in the catalog."""

import re
from dataclasses import replace
from typing import Final

from corral.catalog.model_names import model
from corral.catalog.models import Model, ModelRefused
from corral.domain.errors import NotFound
from corral.plan.measures import number
from corral.plan.rows import Row, RowRefused

VOCABULARY: Final = 51_200  # GPT-2's, padded as Megatron pads it
_MATRICES: Final = ((2, True), (2, False), (3, True), (3, False))  # of an MLP; whether tied
_PLAIN: Final = re.compile(r"gpt|mpt|opt|bloom|megatron|nemotron|palm", re.I)


def whole(row: Row, column: str) -> int | None:
    """A cell as a number of things; None where it is empty, or none."""
    found = number(row, column)
    return None if found is None or found < 1 else round(found)


def model_of_row(row: Row, told: list[str]) -> Model:
    """What the row says of its model. One with experts or with latent attention, which no column
    tells of, and one without dimensions are the catalog's, with the row's layers.

    Raises: RowRefused, where the row has no dimensions and the catalog not the name.
    """
    name = row.get("model", "")
    layers, hidden, heads = (whole(row, column) for column in ("layers", "hidden", "heads"))
    has_dimensions = not (layers is None or hidden is None or heads is None)
    known = _known(name, has_dimensions=has_dimensions)
    if known is not None and (known.experts or known.latent or not has_dimensions):
        told.append(f"{known.name} as the catalog has it")
        return _with_layers(known, layers or known.layers)
    if layers is None or hidden is None or heads is None:
        raise RowRefused(
            f"the dimensions of {name or 'the model'} are not said",
            hint="fill the columns layers, hidden and heads",
        )
    if (whole(row, "ep") or 1) > 1:
        raise RowRefused(
            f"{name or 'the model'} has experts, and no column says how many",
            hint="name a model that is in: corral plan catalog models",
        )
    vocab = whole(row, "vocab")
    if vocab is None:
        vocab = VOCABULARY
        told.append(f"a vocabulary of {VOCABULARY} tokens")
    kv_heads = whole(row, "kv_heads") or heads
    plain = Model(
        name=name,
        layers=layers,
        hidden=hidden,
        heads=heads,
        kv_heads=kv_heads if heads % kv_heads == 0 else heads,
        head_dim=max(hidden // heads, 1),
        ffn=whole(row, "ffn") or 4 * hidden,
        vocab=vocab,
        is_gated=False,
    )
    return _gated(plain, number(row, "params"), told)


def _known(name: str, *, has_dimensions: bool) -> Model | None:
    try:
        return model(name)
    except NotFound:
        return None
    except ModelRefused as wrong:
        if has_dimensions:
            return None
        raise RowRefused(wrong.message, hint=wrong.hint) from wrong


def _with_layers(known: Model, layers: int) -> Model:
    """A model of as many layers: some runs are of a part of one."""
    if known.experts is None or layers == known.layers:
        return replace(known, layers=layers)
    dense = min(known.experts.dense_layers, layers - 1)
    return replace(known, layers=layers, experts=replace(known.experts, dense_layers=dense))


def _gated(plain: Model, parameters: float | None, told: list[str]) -> Model:
    """With the form of MLP and output layer that comes nearest to what the model weighs."""
    forms = [replace(plain, is_gated=count == 3, is_tied=tied) for count, tied in _MATRICES]
    if parameters:
        return min(forms, key=lambda one: abs(one.parameters - parameters))
    is_plain = bool(_PLAIN.search(plain.name))
    told.append("an MLP of two matrices" if is_plain else "an MLP of three matrices (SwiGLU)")
    return replace(plain, is_gated=not is_plain, is_tied=is_plain)
