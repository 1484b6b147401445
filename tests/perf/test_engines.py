"""Engines of inference, as rows call them and as people name them."""

import pytest

from corral.domain.errors import NotFound
from corral.perf.engines import engine, engine_said


@pytest.mark.parametrize(
    ("said", "name"),
    [
        ("vllm", "vllm"), ("vLLM 0.6.3", "vllm"), ("vllm-v1", "vllm"), ("SGLang", "vllm"),
        ("vllm v0.10", "vllm"), ("tensorrt_llm", "tensorrt-llm"), ("TRT-LLM", "tensorrt-llm"),
        ("TensorRT-LLM 0.5.0", "tensorrt-llm-0"), ("llama.cpp", "llama.cpp"), ("HF", "pytorch"),
        ("Hugging Face Transformers 4.57", "pytorch"), ("default", "default"),
    ],
)  # fmt: skip
def test_an_engine_is_named_with_its_version_or_without(said: str, name: str) -> None:
    assert engine_said(said).name == name


@pytest.mark.parametrize(
    ("said", "near"),
    [
        ("vlm", "vllm"),
        ("tensorrt-lm", "tensorrt"),
        ("tgi", ""),
        ("", ""),
        ("7", ""),
        ("ftx", ""),
    ],
)
def test_an_engine_that_nobody_has_measured_is_no_default_in_disguise(
    said: str, near: str
) -> None:
    assert engine(said)  # of a row, which may say anything
    with pytest.raises(NotFound) as refused:
        engine_said(said)
    assert near in refused.value.hint.lower()
    assert "corral plan catalog engines" in refused.value.hint
