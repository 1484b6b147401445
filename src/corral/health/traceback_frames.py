"""Frames of a traceback, which show what the program did if the message does not.

A truncated file makes its reader fail in many ways (a seek before the start, a shape
that does not fit). The reader is a library whose file names stay the same.
"""

import re
from typing import Final

from corral.domain.failure_class import FailureKind

# of PyTorch, safetensors, Transformers, Orbax, Flax, TensorFlow
_LOADERS: Final = re.compile(
    r"torch/(serialization|distributed/checkpoint/\w+|jit/_serialization)\.py:|/safetensors/|"
    r":(_?load_state_dict|load_checkpoint|from_pretrained|restore_checkpoint)$|"
    r"/orbax/|flax/training/checkpoints|tensorflow/python/(training/saver|checkpoint)"
)
_READERS: Final = re.compile(
    r"numpy/lib/_?(npyio|format)\w*\.py:|/(gzip|bz2|lzma|_compression|tarfile|csv|pickle)\.py:|"
    r"/zipfile(/__init__)?\.py:|/json/(decoder|__init__)\.py:|/xml/etree/|"
    r"/(pandas/io|pandas/core/internals|pyarrow|h5py|zarr|PIL|imageio|soundfile|torchaudio|"
    r"webdataset|litdata|streaming|tifffile|nibabel|pydicom|fastparquet|polars/io)\b[^:]*:"
)
# os.environ[NAME]
_ENVIRONMENT: Final = re.compile(r"(?:<frozen os>|/os\.py):__getitem__$")
_WRITES: Final = re.compile(
    r":\w*(save|writ|dump|encod|clos|flush|append)\w*$|:__exit__$"
)


_SAVES: Final = re.compile(r"^_?(?:save|dump|write|export)\w*$|\wsave\w*$")


def is_saving(function: str) -> bool:
    """Return whether a function of this name writes files; code that it calls then
    reads none."""
    return _SAVES.match(function) is not None


def kind_of_place(frame: str) -> FailureKind | None:
    """Return the class of failure for a location in a library; None if it shows none.
    `frame` is "FILE:FUNCTION", or "" if unknown."""
    if _ENVIRONMENT.search(frame):
        return FailureKind.VARIABLE
    if not frame or _WRITES.search(frame):
        return None
    if _LOADERS.search(frame):
        return FailureKind.CHECKPOINT
    return FailureKind.DATA if _READERS.search(frame) else None
