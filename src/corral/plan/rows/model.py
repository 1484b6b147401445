"""The model of a row of a measured table, given by its dimensions or by its name in the
catalog."""

import re
from dataclasses import replace
from typing import Final

from corral.catalog.model_names import model
from corral.catalog.models import Model, ModelRefused
from corral.domain.errors import NotFound
from corral.plan.rows.measures import number
from corral.plan.rows.row import Row, RowRefused

VOCABULARY: Final = 51_200  # GPT-2's, padded as Megatron pads it
SEQUENCE: Final = 8_192  # of a model that could do with more
OLD_SEQUENCE: Final = 2_048  # of an unknown model, as GPT-3's
_WIDTH: Final = 128  # of a head; and of a model, for each of its layers
_TRIES: Final = 256  # numbers of heads, up and down
# of an MLP; whether tied
_MATRICES: Final = ((2, True), (2, False), (3, True), (3, False))
_PLAIN: Final = re.compile(r"gpt|mpt|opt|bloom|megatron|nemotron|palm", re.I)


def whole(row: Row, column: str) -> int | None:
    """Return a cell as a whole number; None if it is empty or less than 1."""
    value = number(row, column)
    return None if value is None or value < 1 else round(value)


def model_of_row(row: Row, remarks: list[str]) -> Model:
    """Return the model of the row. It comes from the catalog if the row has no
    dimensions, or if the model has experts or latent attention, which no column
    describes. It then gets the row's number of layers.

    Raises: RowRefused if the row has no dimensions and the catalog does not have the
    name.
    """
    name = row.get("model", "")
    layers, hidden, heads = (
        whole(row, column) for column in ("layers", "hidden", "heads")
    )
    has_dimensions = not (layers is None or hidden is None or heads is None)
    vocab = whole(row, "vocab")
    known_model = _find_catalog_model(name, has_dimensions=has_dimensions)
    if known_model is not None and (
        known_model.experts or known_model.latent or not has_dimensions
    ):
        remarks.append(f"{known_model.name} as in the catalog")
        return _with_layers(known_model, layers or known_model.layers)
    if layers is None or hidden is None or heads is None:
        layers, hidden, heads = _by_size(row, vocab or VOCABULARY, remarks)
    if (whole(row, "ep") or 1) > 1:
        raise RowRefused(
            f"{name or 'the model'} has experts, but no column gives their number",
            hint="use a model of the catalog; run: corral plan catalog models",
        )
    if vocab is None:
        vocab = VOCABULARY
        remarks.append(f"a vocabulary of {VOCABULARY} tokens")
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
    return _choose_mlp_form(plain, number(row, "params"), remarks)


def sequence_of(row: Row, remarks: list[str]) -> int:
    """Return the sequence length of the row, or the usual one.

    The usual length is the context of the catalog's model, at most that of Llama 3,
    MaxText's recipes and Megatron Bridge's. For an unknown model it is that of GPT-3.

    Raises: RowRefused, if the row does not describe the model.
    """
    if (sequence := whole(row, "seq_len")) is not None:
        return sequence
    name = row.get("model", "")
    known_model = _find_catalog_model(name, has_dimensions=True)
    if known_model is None and not (row.get("layers") or row.get("params")):
        raise RowRefused(
            "the row gives no sequence length",
            hint="fill the column seq_len",
        )
    made_for = known_model.context if known_model else 0
    is_short = "short sequence" in row.get("notes", "")
    usual = OLD_SEQUENCE if is_short else min(made_for or OLD_SEQUENCE, SEQUENCE)
    remarks.append(f"sequences of {usual:,} tokens")
    return usual


def _by_size(row: Row, vocab: int, remarks: list[str]) -> tuple[int, int, int]:
    """Return the number of layers, the width and the number of heads of a plain model
    with the row's number of parameters.

    Each layer has 12 times the square of the width as parameters. The width is 128
    times the number of layers, as in GPT-3, and each head is 128 wide.

    Raises: RowRefused, if the row does not give the size of the model. Source:
    arXiv:2005.14165, table 2.1; arXiv:2104.04473, section 5.
    """
    parameters = number(row, "params") or _size_said(row.get("model", ""))
    if not 1e6 <= parameters <= 1e15:  # which nothing and "nan" is neither
        raise RowRefused(
            f"the dimensions of {row.get('model') or 'the model'} are not given",
            hint="fill the columns layers, hidden and heads",
        )
    width = whole(row, "hidden") or _WIDTH * round(
        (parameters * _WIDTH / 12) ** (1 / 3) / _WIDTH
    )
    inside = max(parameters - vocab * width, parameters / 2)
    layers = whole(row, "layers") or max(round(inside / (12 * width**2)), 1)
    heads = whole(row, "heads") or _choose_head_count(width, whole(row, "tp") or 1)
    remarks.append(
        f"{layers} layers, {width} wide, with {heads} heads, for {parameters:.3g} parameters"
    )
    return layers, width, heads


def _choose_head_count(width: int, shared_by: int) -> int:
    """Return a number of heads that divides the width evenly, also over the GPUs that
    share the heads, with a head size as close to 128 as possible."""
    aim = max(round(width / _WIDTH / shared_by), 1)
    for away in range(min(aim, _TRIES)):
        for heads_per_gpu in (aim + away, aim - away):
            if width % (heads_per_gpu * shared_by) == 0:
                return heads_per_gpu * shared_by
    return max(width // _WIDTH, 1)


def _size_said(name: str) -> float:
    """Return the number of parameters that a GPT model's name states: GPT 52B is 52e9.
    It is 0 for other families, which may have experts that their names do not state."""
    size = (
        re.search(r"(?<![\w.])([\d.]+) ?b\b", name, re.I)
        if _PLAIN.search(name)
        else None
    )
    return float(size[1]) * 1e9 if size else 0.0


def _find_catalog_model(name: str, *, has_dimensions: bool) -> Model | None:
    try:
        return model(name)
    except NotFound:
        return None
    except ModelRefused as wrong:
        if has_dimensions:
            return None
        raise RowRefused(wrong.message, hint=wrong.hint) from wrong


def _with_layers(known: Model, layers: int) -> Model:
    """Return the model with this number of layers, because some runs use only a part of
    a model."""
    if known.experts is None or layers == known.layers:
        return replace(known, layers=layers)
    dense = min(known.experts.dense_layers, layers - 1)
    return replace(
        known, layers=layers, experts=replace(known.experts, dense_layers=dense)
    )


def _choose_mlp_form(
    plain: Model, parameters: float | None, remarks: list[str]
) -> Model:
    """Return the model with a gated or plain MLP and a tied or own output layer,
    whichever gives the number of parameters nearest to `parameters`."""
    forms = [
        replace(plain, is_gated=count == 3, is_tied=tied) for count, tied in _MATRICES
    ]
    if parameters:
        return min(forms, key=lambda one: abs(one.parameters - parameters))
    is_plain = bool(_PLAIN.search(plain.name))
    remarks.append(
        "an MLP of two matrices" if is_plain else "an MLP of three matrices (SwiGLU)"
    )
    return replace(plain, is_gated=not is_plain, is_tied=is_plain)
