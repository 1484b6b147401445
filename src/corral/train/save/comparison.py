"""Comparison of two saves: settings, metrics, and the norm of the difference of each
layer."""

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Final

from corral.train.save.manifest import Manifest
from corral.train.save.saved_tensors import (
    SavedTensor,
    SavedTensors,
    contiguous_regions,
)

MODEL: Final = "model/"


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerDifference:
    """Difference of the parameters of one layer. `relative`: the norm of the difference
    over the norm of the first save's parameters; None if those are all 0. `shapes`: the
    tensors that only one save has, or that have another shape."""

    layer: str
    parameters: int
    difference: float
    relative: float | None
    shapes: tuple[str, ...] = ()


def compare(
    first: SavedTensors,
    second: SavedTensors,
    manifests: tuple[Manifest, Manifest],
) -> dict[str, Any]:
    """Return the differences of two verified saves as a document. Tensors are read piece
    by piece."""
    settings = [
        _settings_of(save, manifest)
        for save, manifest in zip((first, second), manifests, strict=True)
    ]
    metrics = [dict(manifest.metrics) for manifest in manifests]
    return {
        "settings": _differing(*settings),
        "metrics": {
            name: [values.get(name) for values in metrics]
            for name in sorted(set(metrics[0]) | set(metrics[1]))
        },
        "layers": [asdict(layer) for layer in compare_layers(first, second)],
    }


def compare_layers(first: SavedTensors, second: SavedTensors) -> list[LayerDifference]:
    """Return the differences of the model's layers, in the order of the first save. A
    layer is the part of a parameter's name before its last dot."""
    names = [
        name
        for name in dict.fromkeys((*first.tensors, *second.tensors))
        if name.startswith(MODEL)
    ]
    by_layer: dict[str, list[str]] = {}
    for name in names:
        layer = name.removeprefix(MODEL).rpartition(".")[0]
        by_layer.setdefault(layer, []).append(name)
    return [_layer_of(layer, names, first, second) for layer, names in by_layer.items()]


def _layer_of(
    layer: str, names: list[str], first: SavedTensors, second: SavedTensors
) -> LayerDifference:
    parameters, squares, base = 0, 0.0, 0.0
    shapes: list[str] = []
    for name in names:
        tensor = first.tensors.get(name)
        counterpart = second.tensors.get(name)
        if tensor is None or counterpart is None or tensor.shape != counterpart.shape:
            shapes.append(f"{name.removeprefix(MODEL)}: {_shapes(tensor, counterpart)}")
            continue
        parameters += math.prod(tensor.shape)
        for region in contiguous_regions(tensor.shape, tensor.dtype.itemsize):
            piece = first.read(tensor, region).double()
            difference = second.read(counterpart, region).double() - piece
            squares += float(difference.square().sum())
            base += float(piece.square().sum())
    return LayerDifference(
        layer=layer,
        parameters=parameters,
        difference=math.sqrt(squares),
        relative=math.sqrt(squares / base) if base else None,
        shapes=tuple(shapes),
    )


def _shapes(*tensors: SavedTensor | None) -> str:
    texts = [
        "absent" if tensor is None else str(list(tensor.shape)) for tensor in tensors
    ]
    return f"{texts[0]} and {texts[1]}"


def _settings_of(save: SavedTensors, manifest: Manifest) -> dict[str, Any]:
    """Return the plain settings of a save by name: how it was written, and the groups of
    its optimizers."""
    settings: dict[str, Any] = {
        "attempt": manifest.attempt,
        "ranks": manifest.world_size,
        "torch": manifest.torch,
    }
    common = save.common() or {}
    for number, groups in enumerate(common.get("groups") or ()):
        for index, group in enumerate(groups):
            for name, value in group.items():
                if name != "params" and _is_plain(value):
                    settings[f"optimizer {number}, group {index}: {name}"] = value
    return settings


def _is_plain(value: Any) -> bool:
    return value is None or isinstance(value, bool | int | float | str)


def _differing(
    before: Mapping[str, Any], after: Mapping[str, Any]
) -> dict[str, list[Any]]:
    return {
        name: [before.get(name), after.get(name)]
        for name in dict.fromkeys((*before, *after))
        if before.get(name) != after.get(name)
    }
