"""The small GPT: the text alone decides the next byte."""

import importlib.util
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

pytestmark = pytest.mark.train
EXAMPLE = Path(__file__).parents[2] / "examples" / "tiny_gpt" / "train.py"


@pytest.fixture(scope="module")
def tiny_model() -> Any:
    pytest.importorskip("torch")
    from corral.serve import tiny_model

    return tiny_model


@pytest.fixture
def weights(tiny_model: Any, tmp_path: Path) -> Path:
    import torch

    torch.manual_seed(1)
    path = tmp_path / "weights.pt"
    torch.save(tiny_model.TinyGpt().state_dict(), path)
    return path


def text_after(predictor: Any, text: bytes, count: int, temperature: float) -> bytes:
    for _ in range(count):
        text += bytes([predictor.next_byte(text, temperature)])
    return text


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_two_predictors_write_the_same_text_from_any_cut(
    tiny_model: Any, weights: Path, temperature: float
) -> None:
    first, second = (tiny_model.load_predictor(weights) for _ in range(2))
    whole = text_after(first, "größe".encode(), 200, temperature)
    for cut in (0, 1, 150):
        begun = whole[: len(whole) - 200 + cut]
        assert text_after(second, begun, 200 - cut, temperature) == whole
    assert whole[len("größe".encode()) :].isascii()


def test_a_temperature_makes_other_text(tiny_model: Any, weights: Path) -> None:
    predictor = tiny_model.load_predictor(weights)
    likeliest, sampled = (text_after(predictor, b"a", 50, heat) for heat in (0.0, 1.0))
    assert likeliest != sampled


def test_an_empty_text_has_a_next_byte(tiny_model: Any, weights: Path) -> None:
    assert tiny_model.load_predictor(weights).next_byte(b"", 0.0) < 128


def test_the_weights_are_those_of_the_example(tiny_model: Any) -> None:
    example = _loaded(EXAMPLE)
    shapes = {name: one.shape for name, one in example.TinyGPT().state_dict().items()}
    own = tiny_model.TinyGpt().state_dict()
    assert {name: one.shape for name, one in own.items()} == shapes


def test_a_file_that_holds_no_weights_is_refused(
    tiny_model: Any, tmp_path: Path
) -> None:
    import torch

    path = tmp_path / "w.pt"
    with pytest.raises(FileNotFoundError):
        tiny_model.load_predictor(path)
    for content in (b"", b"no weights"):
        path.write_bytes(content)
        with pytest.raises(ValueError, match="holds no weights of this model"):
            tiny_model.load_predictor(path)
    torch.save({"a": torch.zeros(1)}, path)
    with pytest.raises(ValueError, match="holds no weights of this model"):
        tiny_model.load_predictor(path)


def _loaded(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location("tiny_gpt_train", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module
