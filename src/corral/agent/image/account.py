"""The account that an image is fetched and unpacked for."""

from collections.abc import Mapping, Sequence
from typing import Protocol


class ImageAccount(Protocol):
    """An account of the node. `groups` has the main one first; `env` names it and its
    home."""

    @property
    def uid(self) -> int: ...

    @property
    def groups(self) -> Sequence[int]: ...

    @property
    def env(self) -> Mapping[str, str]: ...
