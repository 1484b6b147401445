"""Base of the positions of other libraries' loaders."""

from collections.abc import Iterator
from typing import Any


class PositionAdapter:
    """Position of a loader that keeps its state itself. It fits only the number of
    ranks that saved it.

    Args:
        source: The loader, which has `state_dict` and `load_state_dict`.
    """

    def __init__(self, source: Any) -> None:
        self.source = source

    def __iter__(self) -> Iterator[Any]:
        return iter(self.source)

    def state_dict(self) -> Any:
        return self.source.state_dict()

    def load_state_dict(self, state: Any) -> None:
        self.source.load_state_dict(state)
