"""Types of GPUs, by the names that jobs use to request them."""

import re
from typing import Final

_MAKERS: Final = frozenset(
    {
        "nvidia",
        "tesla",
        "geforce",
        "quadro",
        "graphics",
        "device",
        "amd",
        "instinct",
        "intel",
        "data",
        "center",
        "gpu",
    }
)


def short_type(name: str) -> str:
    """Return the name of a GPU type that jobs use. For example: "NVIDIA H100 80GB HBM3"
    becomes h100."""
    name_tokens = [
        token for token in re.split(r"[\s\-_/]+", name.lower()) if token not in _MAKERS
    ]
    if name_tokens[:2] == ["rtx", "pro"]:
        return "".join(name_tokens[:3])
    if name_tokens[:1] == ["rtx"] and len(name_tokens) > 1:
        model = (
            name_tokens[1]
            if re.fullmatch(r"a\d+", name_tokens[1])
            else f"rtx{name_tokens[1]}"
        )
        return model + "".join(
            model_suffix
            for model_suffix in name_tokens[2:]
            if model_suffix in ("ada", "ti", "super")
        )
    if name_tokens[:1] == ["max"] and len(name_tokens) > 1:  # Intel's
        return f"max{name_tokens[1]}"
    models = (
        model_token
        for model_token in name_tokens
        if re.fullmatch(r"[a-z]+\d+[a-z]*", model_token)
    )
    return next(models, "-".join(name_tokens) or "gpu")
