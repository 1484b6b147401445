"""Position of torchdata's StatefulDataLoader."""

from collections.abc import Iterator
from typing import Any

from corral.train.data.adapters.position_adapter import PositionAdapter


class TorchdataPosition(PositionAdapter):
    """Position of a StatefulDataLoader. Its state before the first batch is saved as
    None, because reading it would start the workers."""

    def __init__(self, source: Any) -> None:
        super().__init__(source)
        self._is_begun = False

    def __iter__(self) -> Iterator[Any]:
        self._is_begun = True
        return iter(self.source)

    def state_dict(self) -> Any:
        return self.source.state_dict() if self._is_begun else None

    def load_state_dict(self, state: Any) -> None:
        self._is_begun = True
        self.source.load_state_dict(state)
