"""Interface of the account for which an image is fetched and unpacked."""

from collections.abc import Mapping, Sequence
from typing import Protocol


class ImageAccount(Protocol):
    """An account of the node. `groups` has the main group first; `env` has the
    account's name and home."""

    @property
    def uid(self) -> int: ...

    @property
    def groups(self) -> Sequence[int]: ...

    @property
    def env(self) -> Mapping[str, str]: ...
