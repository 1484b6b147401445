"""Export of the model of a save: as safetensors, as a file of torch, or as a folder that
Hugging Face libraries read."""

import json
import os
import shutil
import struct
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import torch

from corral.domain.errors import Refusal
from corral.train.save.file_writing import sync_directory
from corral.train.save.saved_tensors import SavedTensor, SavedTensors

MODEL: Final = "model/"
CONFIG: Final = "config.json"
FORMATS: Final = ("safetensors", "torch", "hf")
ALIGN_BYTES: Final = 8
# names of the types in the header of safetensors
_DTYPES: Final = {
    torch.float64: "F64",
    torch.float32: "F32",
    torch.float16: "F16",
    torch.bfloat16: "BF16",
    torch.float8_e4m3fn: "F8_E4M3",
    torch.float8_e5m2: "F8_E5M2",
    torch.int64: "I64",
    torch.int32: "I32",
    torch.int16: "I16",
    torch.int8: "I8",
    torch.uint8: "U8",
    torch.bool: "BOOL",
}


class CannotExport(Refusal):
    """The error for a save that cannot be exported in the requested format."""

    code = "cannot_export"


def export(save: SavedTensors, directory: Path, target: Path, to: str) -> list[Path]:
    """Write the model of a verified save into the folder `target`, and return the files.

    Only the tensors of the model are written, under their names in the script's module.
    A file appears under its name once it is complete.

    Args:
        directory: folder of the save, near which config.json of the model is looked for.
        to: safetensors, torch or hf. torch holds the whole model in memory.

    Raises: CannotExport, OSError.
    """
    tensors = [
        tensor for name, tensor in save.tensors.items() if name.startswith(MODEL)
    ]
    if not tensors:
        raise CannotExport("the save contains no tensors of a model")
    config = _config_near(directory) if to == "hf" else None
    target.mkdir(parents=True, exist_ok=True)
    name = "model.pt" if to == "torch" else "model.safetensors"
    path = target / name
    if path.exists():
        raise CannotExport(
            f"{path} exists already", hint="name a folder without an exported model"
        )
    partial = path.with_name(f"{name}.partial")
    try:
        if to == "torch":
            _write_torch(save, tensors, partial)
        else:
            _write_safetensors(save, tensors, partial)
        partial.rename(path)
    finally:
        partial.unlink(missing_ok=True)
    written = [path]
    if config is not None:
        written.append(Path(shutil.copyfile(config, target / CONFIG)))
    sync_directory(target)
    return written


def _config_near(directory: Path) -> Path:
    """Return the model's config.json in the folder of the save, of its attempt, or of
    all saves of the job. Raises: CannotExport."""
    folders = (directory, *directory.parents[:2])
    for folder in folders:
        path = folder / CONFIG
        if not path.is_file():
            continue
        try:
            config = json.loads(path.read_text())
        except ValueError as error:
            raise CannotExport(f"{path} is not valid JSON: {error}") from error
        if not isinstance(config, dict) or "model_type" not in config:
            raise CannotExport(f"{path} names no model_type, as Hugging Face needs")
        return path
    raise CannotExport(
        "Hugging Face needs the config.json of the model, and there is none in "
        f"{', '.join(str(folder) for folder in folders)}",
        hint=f"let the script write it: model.config.save_pretrained({str(folders[-1])!r}); "
        "or export with --to safetensors",
    )


def _write_safetensors(
    save: SavedTensors, tensors: Sequence[SavedTensor], path: Path
) -> None:
    """Write the tensors one after another, piece by piece."""
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    offset = 0
    for tensor in tensors:
        if tensor.dtype not in _DTYPES:
            raise CannotExport(
                f"the tensor {tensor.name.removeprefix(MODEL)} is of type {tensor.dtype}, "
                "which safetensors does not have",
                hint="export with --to torch",
            )
        end = offset + tensor.size_bytes
        header[tensor.name.removeprefix(MODEL)] = {
            "dtype": _DTYPES[tensor.dtype],
            "shape": list(tensor.shape),
            "data_offsets": [offset, end],
        }
        offset = end
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % ALIGN_BYTES)
    with path.open("xb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for tensor in tensors:
            for piece in save.pieces(tensor):
                file.write(piece.reshape(-1).view(torch.uint8).numpy().data)
        file.flush()
        os.fsync(file.fileno())


def _write_torch(
    save: SavedTensors, tensors: Sequence[SavedTensor], path: Path
) -> None:
    state: dict[str, torch.Tensor] = {}
    for tensor in tensors:
        whole = torch.empty(tensor.shape, dtype=tensor.dtype)
        flat, position = whole.view(-1), 0
        for piece in save.pieces(tensor):
            flat[position : position + piece.numel()] = piece.reshape(-1)
            position += piece.numel()
        state[tensor.name.removeprefix(MODEL)] = whole
    with path.open("xb") as file:
        torch.save(state, file)
        file.flush()
        os.fsync(file.fileno())
