"""Position of a pipeline or loader of webdataset, which has no state itself."""

import hashlib
import pickle
from collections.abc import Iterator
from typing import Any

from corral.train.data.adapters.position_adapter import PositionAdapter
from corral.train.data.stream_position import DataChanged


class WebDatasetPosition(PositionAdapter):
    """Number of batches that a pipeline has given to this rank in its epoch. A resume
    reads the pipeline up to there again, and compares the last batch.

    The order must repeat: shuffle with `detshuffle`, or give `seed` to WebDataset.
    """

    def __init__(self, source: Any) -> None:
        super().__init__(source)
        self._epoch = 0
        self._count = 0
        self._newest: Any = None
        self._hash = ""

    def __iter__(self) -> Iterator[Any]:
        for stage in getattr(self.source, "pipeline", ()):
            if isinstance(getattr(stage, "epoch", None), int):
                stage.epoch = self._epoch - 1  # a shuffle adds 1 when it begins
        batches = iter(self.source)
        self._skip(batches)
        for batch in batches:
            self._count += 1
            self._newest = batch
            yield batch
        self._epoch += 1
        self._count = 0
        self._hash = ""

    def state_dict(self) -> dict[str, Any]:
        digest = self._hash if self._newest is None else _hash_of(self._newest)
        return {"epoch": self._epoch, "count": self._count, "newest": digest}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self._epoch = state["epoch"]
        self._count = state["count"]
        self._hash = state["newest"]
        self._newest = None

    def _skip(self, batches: Iterator[Any]) -> None:
        """Read the batches before the position.

        Raises: DataChanged if the last of them is not that of the save.
        """
        batch = None
        for _ in range(self._count):
            batch = next(batches, None)
        if self._count and _hash_of(batch) != self._hash:
            raise DataChanged(
                f"batch {self._count} of the pipeline is not that of the save: its order "
                "does not repeat, or the files have changed",
                hint="shuffle with detshuffle, or use corral.train.data.Reader",
            )


def _hash_of(batch: Any) -> str:
    """Return a hash of a batch; of a sample with a key, that of the key."""
    key = batch.get("__key__") if isinstance(batch, dict) else None
    content = batch if key is None else key
    return hashlib.sha256(pickle.dumps(content, protocol=4)).hexdigest()
