"""Position of litdata's StreamingDataLoader."""

from collections.abc import Iterator
from typing import Any

from corral.train.data.adapters.position_adapter import PositionAdapter


class LitdataPosition(PositionAdapter):
    """Position of a StreamingDataLoader. It fits the number of ranks, workers and
    samples of a batch that saved it. Between two epochs there is no position in an epoch:
    the next one begins at its first batch."""

    def __init__(self, source: Any) -> None:
        super().__init__(source)
        self._is_begun = False

    def __iter__(self) -> Iterator[Any]:
        self._is_begun = True
        yield from self.source

    def state_dict(self) -> Any:
        return self.source.state_dict() if self._is_begun else None

    def load_state_dict(self, state: Any) -> None:
        self._is_begun = True
        self.source.load_state_dict(state)
