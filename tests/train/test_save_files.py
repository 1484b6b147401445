"""Comparison and export of saves, on real saves, and as the program that does them."""

import json
import struct
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from corral.train.save import saved_tensors
from corral.train.save.comparison import compare
from corral.train.save.export import CannotExport, export
from corral.train.save.file_program import run
from corral.train.save.manifest import MANIFEST, decode
from corral.train.save.saved_tensors import (
    SavedTensor,
    SavedTensors,
    TensorRegion,
    contiguous_regions,
)
from corral.train.save.saver import Saved
from corral.train.save.storage import TensorPlace
from tests.train.saves import holder_at, make_saves

pytestmark = pytest.mark.train
NAMES = {"0.weight", "0.bias", "1.weight", "1.bias"}


@pytest.fixture
def pair(tmp_path: Path) -> list[Saved]:
    """Two saves in which every parameter is the step."""
    return make_saves(tmp_path / "saves", [3, 5])


@pytest.fixture
def save(pair: list[Saved]) -> Iterator[SavedTensors]:
    with SavedTensors(pair[0].directory) as opened:
        yield opened


def asked(saves: list[Saved], action: str, **options: str) -> dict[str, Any]:
    return {
        "action": action,
        "saves": [
            {
                "path": str(save.path),
                "attempt": save.attempt,
                "step": save.step,
                "manifest_sha256": save.manifest_sha256,
            }
            for save in saves
        ],
        **options,
    }


def read_safetensors(path: Path) -> dict[str, torch.Tensor]:
    """Read a file of safetensors by its published format."""
    data = path.read_bytes()
    (length,) = struct.unpack("<Q", data[:8])
    header = json.loads(data[8 : 8 + length])
    assert header.pop("__metadata__") == {"format": "pt"}
    body = bytearray(data[8 + length :])
    assert max(entry["data_offsets"][1] for entry in header.values()) == len(body)
    return {
        name: torch.frombuffer(
            body[slice(*entry["data_offsets"])], dtype=torch.float32
        ).view(entry["shape"])
        for name, entry in header.items()
        if entry["dtype"] == "F32"
    }


def test_the_norm_of_each_layer_is_of_its_parameters(pair: list[Saved]) -> None:
    manifests = [decode((save.directory / MANIFEST).read_bytes()) for save in pair]
    with (
        SavedTensors(pair[0].directory) as first,
        SavedTensors(pair[1].directory) as second,
    ):
        found = compare(first, second, (manifests[0], manifests[1]))
    layers = {layer["layer"]: layer for layer in found["layers"]}
    assert layers["0"]["parameters"] == 24 * 8 + 8
    assert layers["0"]["difference"] == pytest.approx((200 * 4) ** 0.5)
    assert layers["1"]["relative"] == pytest.approx(2 / 3)
    assert found["settings"] == {}, "the optimizer has the same settings"


def test_a_tensor_of_another_shape_is_named_and_not_compared(tmp_path: Path) -> None:
    first, other = (make_saves(tmp_path / name, [1])[0] for name in ("a", "b"))
    with SavedTensors(first.directory) as left, SavedTensors(other.directory) as right:
        tensors = dict(right.tensors)
        weight = tensors.pop("model/1.weight")
        right.tensors = tensors
        manifest = decode((first.directory / MANIFEST).read_bytes())
        found = compare(left, right, (manifest, manifest))
        assert found["layers"][1]["shapes"] == ("1.weight: [2, 8] and absent",)
        assert found["layers"][1]["parameters"] == 2
        assert left.read(weight, next(contiguous_regions((2, 8), 4))).shape == (2, 8)


def test_pieces_cover_a_tensor_once_and_in_order(
    save: SavedTensors, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Even one row may be longer than a piece."""
    for most in (4, 20, 96, 100, 10**6):
        monkeypatch.setattr(saved_tensors, "PIECE_BYTES", most)
        tensor = save.tensors["model/0.weight"]
        pieces = list(save.pieces(tensor))
        assert max(piece.nbytes for piece in pieces) <= most
        assert sum(piece.numel() for piece in pieces) == 24 * 8
        for shape in ((), (0, 3), (7,), (2, 3, 5)):
            whole = torch.arange(torch.Size(shape).numel()).view(shape)
            read = [
                whole[
                    tuple(
                        slice(o, o + n)
                        for o, n in zip(r.offsets, r.lengths, strict=True)
                    )
                ]
                for r in contiguous_regions(shape, 4)
            ]
            flat = (
                torch.cat([piece.reshape(-1) for piece in read])
                if read
                else whole.view(-1)
            )
            assert torch.equal(flat, whole.reshape(-1))


def test_a_sharded_tensor_is_read_as_the_whole_one(save: SavedTensors) -> None:
    """Its four shards are blocks of two dimensions, and each region spans several."""
    whole = torch.arange(30, dtype=torch.int32).view(5, 6)
    shards, data = [], b""
    for row, rows in ((0, 2), (2, 3)):
        for column, columns in ((0, 4), (4, 2)):
            block = whole[row : row + rows, column : column + columns].contiguous()
            raw = bytes(block.numpy().tobytes())
            place = TensorPlace(
                file="blocks.bin",
                offset=len(data),
                length=len(raw),
                shape=(rows, columns),
                dtype=torch.int32,
            )
            shards.append(((row, column), place))
            data += raw
    (save._directory / "blocks.bin").write_bytes(data)
    tensor = SavedTensor(
        name="x", shape=(5, 6), dtype=torch.int32, shards=tuple(shards)
    )
    for row, rows in ((0, 5), (1, 3), (4, 1)):
        for column, columns in ((0, 6), (3, 2), (5, 1)):
            region = TensorRegion(offsets=(row, column), lengths=(rows, columns))
            expected = whole[row : row + rows, column : column + columns]
            assert torch.equal(save.read(tensor, region), expected)


def test_the_exported_model_is_the_saved_one(
    save: SavedTensors, tmp_path: Path
) -> None:
    (path,) = export(save, save._directory, tmp_path / "out", "safetensors")
    tensors = read_safetensors(path)
    assert tensors.keys() == NAMES
    (other,) = export(save, save._directory, tmp_path / "torch", "torch")
    state = torch.load(other, weights_only=True)
    model = holder_at(-1).model
    model.load_state_dict(state)
    for name, value in model.state_dict().items():
        assert bool((value == 3).all())
        assert torch.equal(tensors[name], value)
    assert not list(tmp_path.rglob("*.partial"))


def test_an_existing_export_is_not_replaced(save: SavedTensors, tmp_path: Path) -> None:
    export(save, save._directory, tmp_path, "safetensors")
    with pytest.raises(CannotExport, match="exists already"):
        export(save, save._directory, tmp_path, "safetensors")


def test_hugging_face_needs_the_config_beside_the_saves(
    save: SavedTensors, tmp_path: Path
) -> None:
    with pytest.raises(CannotExport, match=r"config\.json"):
        export(save, save._directory, tmp_path / "hf", "hf")
    assert not (tmp_path / "hf").exists()
    config = tmp_path / "saves" / "config.json"
    config.write_text("{}")
    with pytest.raises(CannotExport, match="model_type"):
        export(save, save._directory, tmp_path / "hf", "hf")
    config.write_text('{"model_type": "gpt2"}')
    written = export(save, save._directory, tmp_path / "hf", "hf")
    assert [path.name for path in written] == ["model.safetensors", "config.json"]


def test_nothing_is_read_before_the_save_verifies(
    pair: list[Saved], tmp_path: Path
) -> None:
    shard = next(pair[0].directory.glob("rank-*.bin"))
    data = bytearray(shard.read_bytes())
    data[70] ^= 1
    shard.write_bytes(data)
    request = asked(pair[:1], "export", target=str(tmp_path / "out"), to="safetensors")
    done = subprocess.run(
        [sys.executable, "-m", "corral.train.save.file_program"],
        input=json.dumps(request),
        capture_output=True,
        text=True,
        check=True,
        env={"PYTHONPATH": "src"},
    )
    error = json.loads(done.stdout)["error"]
    assert error["code"] == "checkpoint_broken"
    assert shard.name in error["message"]
    assert not (tmp_path / "out").exists()


def test_a_verified_save_says_how_much_was_read(pair: list[Saved]) -> None:
    found = run(asked(pair[1:], "verify"))
    assert found["size_bytes"] == pair[1].size_bytes
