"""Description of an image for the ranks in it, sent with the shim's spec."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class ImageRoot:
    """`root`: the unpacked image, which nobody changes; `upper`: where a rank's changes go.

    `seen` are folders and files of the node that are seen inside, at the same place; `libraries`
    are the GPU driver's, which are seen in `LIBRARIES`. `words` come before the rank's own, for an
    image that a program of its own runs; then the others are empty. `digest` names its content.
    """

    root: str = ""
    upper: str = ""
    seen: Sequence[str] = ()
    libraries: Sequence[str] = ()
    env: Mapping[str, str] = field(default_factory=dict)
    words: Sequence[str] = ()
    digest: str = ""

    def as_json(self) -> dict[str, Any]:
        return {
            "root": self.root,
            "upper": self.upper,
            "seen": list(self.seen),
            "libraries": list(self.libraries),
            "env": dict(self.env),
            "words": list(self.words),
        }
