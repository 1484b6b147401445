"""A product takes as long as its tiles or its bytes do."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from corral.catalog.devices import Device, device
from corral.catalog.precisions import Precision
from corral.perf.kernels import kernels
from corral.perf.matmul import computed_in, matmul_seconds, streamed_seconds

H100 = device("h100-sxm")
A100 = device("a100-sxm-80")
sizes = st.integers(1, 20_000)


@given(m=sizes, n=sizes, k=sizes, groups=st.integers(1, 64), times=st.floats(1, 10))
def test_a_better_device_is_never_slower(
    m: int, n: int, k: int, groups: int, times: float
) -> None:
    def seconds(one: Device) -> float:
        return matmul_seconds(m, n, k, one, Precision.BF16, groups=groups)

    own = seconds(H100)
    faster = {precision: rate * times for precision, rate in H100.flops.items()}
    assert seconds(replace(H100, flops=faster)) <= own
    wider = replace(H100, memory_bytes_per_s=H100.memory_bytes_per_s * times)
    assert seconds(wider) <= own


@given(m=sizes, n=sizes, k=sizes)
def test_no_product_beats_the_data_sheet(m: int, n: int, k: int) -> None:
    rate = 2 * m * n * k / matmul_seconds(m, n, k, H100, Precision.BF16)
    assert rate < H100.flops[Precision.BF16]


def test_a_large_product_by_hand() -> None:
    # 8192 x 8192 in tiles of 256 x 128 is 32 x 64 = 2,048 tiles; 132 processors take 16
    # waves, which is 16 x 132 = 2,112 tiles: 2 x 256 x 128 x 8192 x 2112 FLOPs =
    # 1.1339e12. At 0.82 of 989 TFLOPS that is 1,398 us; 3 x 134 MB at 0.89 of 3,350
    # GB/s take 135 us, which hides; an empty kernel takes 4.8 us. Measured: 1,542 us
    # (H100), 1,640 us (H200).
    seconds = matmul_seconds(8192, 8192, 8192, H100, Precision.BF16)
    assert seconds == pytest.approx(1403e-6, rel=0.002)


def test_one_token_reads_the_weights_and_nothing_else_counts() -> None:
    # 8192 x 8192 in bf16 are 134.2 MB: at 0.89 of 3,350 GB/s 45.0 us, and 4.8 us.
    # Measured: 51.6.
    assert matmul_seconds(1, 8192, 8192, H100, Precision.BF16) == pytest.approx(
        49.8e-6, rel=0.01
    )
    four_bits = matmul_seconds(1, 8192, 8192, H100, Precision.BF16, weight_bytes=0.5)
    assert four_bits == pytest.approx(16.1e-6, rel=0.02)


def test_what_a_device_lacks_is_computed_in_a_wider_precision() -> None:
    assert computed_in(A100, Precision.FP8) is Precision.BF16
    with pytest.raises(ValueError, match="supports neither fp32"):
        computed_in(replace(A100, flops={Precision.FP8: 1.0}), Precision.FP32)


def test_an_architecture_that_nobody_measured_has_the_default() -> None:
    assert kernels("unheard-of") == kernels("default")
    assert kernels("cdna3").memory == kernels("default").memory
    assert streamed_seconds(
        0, replace(A100, architecture="unheard-of")
    ) == pytest.approx(3e-6)


def test_nothing_is_not_multiplied() -> None:
    with pytest.raises(ValueError, match="at least 1"):
        matmul_seconds(0, 1, 1, H100, Precision.BF16)
