"""Types of GPUs, as jobs ask for them."""

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
    """A GPU's type as jobs ask for it: "NVIDIA H100 80GB HBM3" is h100."""
    words = [
        word for word in re.split(r"[\s\-_/]+", name.lower()) if word not in _MAKERS
    ]
    if words[:2] == ["rtx", "pro"]:
        return "".join(words[:3])
    if words[:1] == ["rtx"] and len(words) > 1:
        model = words[1] if re.fullmatch(r"a\d+", words[1]) else f"rtx{words[1]}"
        return model + "".join(
            word for word in words[2:] if word in ("ada", "ti", "super")
        )
    if words[:1] == ["max"] and len(words) > 1:  # Intel's
        return f"max{words[1]}"
    models = (word for word in words if re.fullmatch(r"[a-z]+\d+[a-z]*", word))
    return next(models, "-".join(words) or "gpu")
