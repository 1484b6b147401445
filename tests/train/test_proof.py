"""Products and copies as a process with PyTorch makes them, here on a CPU."""

import json

import pytest
import torch

from corral.train import device_checks

pytestmark = pytest.mark.train
CPU = torch.device("cpu")


def said(capsys: pytest.CaptureFixture[str]) -> list[dict[str, object]]:
    return [json.loads(line) for line in capsys.readouterr().out.splitlines()]


def test_products_have_the_known_hash_and_copies_a_rate(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(device_checks.COPY_BYTES, "cpu", 1024 * 1024)
    device_checks.products([CPU], 0.05, ["matmul", "memory"])
    product, memory = said(capsys)
    assert (product["kind"], product["wrong"]) == ("matmul", 0)
    assert isinstance(product["made"], int)
    assert product["made"] > 1
    assert isinstance(memory["bytes_per_second"], float)


def test_one_bit_that_is_wrong_in_a_factor_is_found_in_each_product(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    real = device_checks.proofs_of

    def bad(device: torch.device) -> list[device_checks.Proof]:
        found = real(device)
        found[0].left[3, 5] += 1
        return found

    monkeypatch.setattr(device_checks, "proofs_of", bad)
    device_checks.products([CPU], 0.05, ["matmul"])
    (product,) = said(capsys)
    assert product["wrong"] == product["made"]


def test_a_device_that_ends_in_an_error_is_told_and_the_others_go_on(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(device: torch.device) -> float:
        raise RuntimeError(
            "CUDA error: an illegal memory access was encountered\nmore of it"
        )

    monkeypatch.setattr(device_checks, "copies", fails)
    device_checks.products([CPU], 0.05, ["memory"])
    (memory,) = said(capsys)
    assert memory["error"] == "CUDA error: an illegal memory access was encountered"


def test_a_cpu_that_cannot_multiply_judges_no_gpu(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(device_checks, "hash_of", lambda product: "0" * 64)
    device_checks.products([CPU], 0.05, ["matmul"])
    (product,) = said(capsys)
    assert "CPU" in str(product["error"])
