"""Description of an image for the ranks that run in it, sent with the shim's spec."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class ImageRoot:
    """An image for ranks. `root` is the unpacked image, which never changes; `upper` is
    the folder for a rank's changes.

    `seen` lists folders and files of the node that are visible inside, at the same
    path. `libraries` are the GPU driver's, visible in `LIBRARIES`. `env` has the
    image's environment variables. `words` precede the rank's own command, for an image
    that an external program runs; the other fields are then empty. `digest` identifies
    the content.
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
