"""Models and precisions in usual notation."""

import json
from collections.abc import Mapping
from difflib import get_close_matches
from typing import Any, Final

from corral.catalog.model_config import model_of_config
from corral.catalog.model_names import model
from corral.catalog.models import Model, ModelRefused, model_of_dimensions
from corral.catalog.precisions import Precision
from corral.domain.errors import NotFound

_DIMENSIONS: Final = (
    "layers",
    "hidden",
    "heads",
    "kv_heads",
    "head_dim",
    "ffn",
    "vocab",
)
_PRECISIONS: Final = {
    "nvfp4": "fp4",
    "mxfp4": "fp4",
    "float8": "fp8",
    "mxfp8": "fp8",
    "bfloat16": "bf16",
    "half": "fp16",
    "float16": "fp16",
    "float32": "fp32",
    "nf4": "int4",
    "awq": "int4",
    "gptq": "int4",
}
_FORM: Final = (
    "write for example layers=32,hidden=4096,heads=32,kv_heads=8,ffn=14336,vocab=128256"
)


def model_said(text: str) -> Model:
    """Return the model that the text gives by its name, by the text of its config.json,
    or by its dimensions.

    Raises: NotFound with the nearest name, ModelRefused.
    """
    model_text = text.strip()
    if model_text.startswith("{"):
        return model_of_config(_parse_config(model_text))
    return _of_dimensions(model_text) if "=" in model_text else model(model_text)


def _parse_config(text: str) -> Mapping[str, Any]:
    try:
        config = json.loads(text)
    except (ValueError, RecursionError) as error:
        hint = "give the config.json of a model from Hugging Face"
        raise ModelRefused(
            f"the model's config is not valid JSON: {error}", hint=hint
        ) from error
    if not isinstance(config, dict):
        raise ModelRefused(
            "the model's config is not a JSON object", hint="give the whole config.json"
        )
    return config


def _of_dimensions(text: str) -> Model:
    sizes: dict[str, int] = {}
    for assignment in text.split(","):
        name, _, value = (
            field_text.strip() for field_text in assignment.partition("=")
        )
        if name not in _DIMENSIONS:
            raise ModelRefused(
                f"{name!r} is not a dimension of a model", hint=_suggest_dimension(name)
            )
        if not (value.isdecimal() and value.isascii() and len(value) < 20):
            raise ModelRefused(
                f"{name} of the model must be a whole number, not {value!r}", hint=_FORM
            )
        sizes[name] = int(value)
    if missing := [
        name for name in ("layers", "hidden", "heads", "vocab") if name not in sizes
    ]:
        raise ModelRefused(
            f"dimensions of the model are missing: {', '.join(missing)}", hint=_FORM
        )
    return model_of_dimensions(
        layers=sizes["layers"],
        hidden=sizes["hidden"],
        heads=sizes["heads"],
        vocab=sizes["vocab"],
        kv_heads=sizes.get("kv_heads", 0),
        head_dim=sizes.get("head_dim", 0),
        ffn=sizes.get("ffn", 0),
    )


def _suggest_dimension(name: str) -> str:
    near = get_close_matches(name, _DIMENSIONS, n=1)
    return f"did you mean {near[0]}? {_FORM}" if near else _FORM


def precision_said(text: str) -> Precision:
    """Return the precision that the text names. Raises: NotFound with the nearest name."""
    normalized_name = text.strip().lower()
    normalized_name = _PRECISIONS.get(normalized_name, normalized_name)
    if normalized_name not in list(Precision):
        precision_names = [str(precision) for precision in Precision]
        error = NotFound("precision", text, precision_names)
        error.hint = f"{error.hint} give one of {', '.join(precision_names)}".strip()
        raise error
    return Precision(normalized_name)
