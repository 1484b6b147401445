"""Choice of the position for an object that a script gives as its data."""

from collections.abc import Callable, Mapping
from typing import Any, Final

from corral.train.data.adapters.huggingface_dataset import HuggingFacePosition
from corral.train.data.adapters.litdata_loader import LitdataPosition
from corral.train.data.adapters.position_adapter import PositionAdapter
from corral.train.data.adapters.torchdata_loader import TorchdataPosition
from corral.train.data.adapters.webdataset_pipeline import WebDatasetPosition

# (package, class) -> position; the packages are not imported
_ADAPTERS: Final[Mapping[tuple[str, str], Callable[[Any], PositionAdapter]]] = {
    ("torchdata", "StatefulDataLoader"): TorchdataPosition,
    ("litdata", "StreamingDataLoader"): LitdataPosition,
    ("webdataset", "DataPipeline"): WebDatasetPosition,
    ("datasets", "IterableDataset"): HuggingFacePosition,
}


def position_of(data: Any) -> Any:
    """Return the position of a loader of another library, or the object itself."""
    for base in type(data).__mro__:
        package = base.__module__.partition(".")[0]
        adapter = _ADAPTERS.get((package, base.__name__))
        if adapter is not None:
            return adapter(data)
    return data


def fits_any_ranks(position: Any) -> bool:
    """Return whether a saved position is valid for any number of ranks. Those that count
    samples of all ranks have `delivered`; no data at all fits, too."""
    return position is None or hasattr(position, "delivered")
