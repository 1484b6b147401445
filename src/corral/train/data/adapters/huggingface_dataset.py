"""Position of an IterableDataset of Hugging Face's library datasets."""

from typing import Any

from corral.train.data.adapters.position_adapter import PositionAdapter


class HuggingFacePosition(PositionAdapter):
    """Position of an IterableDataset: that of the newest example, and the epoch. The
    examples in a shuffle buffer are lost at a resume, as the library says: shuffle the
    files instead."""

    def state_dict(self) -> Any:
        return {"epoch": self.source.epoch, "examples": self.source.state_dict()}

    def load_state_dict(self, state: Any) -> None:
        self.source.set_epoch(state["epoch"])
        if state["examples"] is not None:
            self.source.load_state_dict(state["examples"])
