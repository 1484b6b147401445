"""Duration in seconds of matrix products, and of kernels that mainly move bytes in
memory."""

from functools import lru_cache
from typing import Final

from corral.catalog.devices import Device
from corral.catalog.precisions import Precision
from corral.perf.kernels import kernels

# Tiles that libraries cut a product into, and the share of the large tile's rate that
# each reaches: a small tile reads its operands more often. Source: NVIDIA, Matrix
# Multiplication Background. The last one is that of a vector, which ordinary cores
# multiply.
_TILES: Final = (
    (256, 128, 1.0),
    (128, 128, 0.95),
    (128, 64, 0.85),
    (64, 64, 0.7),
    (16, 64, 0.5),
    (1, 16, 0.12),
)
# how well reading hides behind computing: the norm that joins the two
_OVERLAP: Final = 4.0
_OUTPUT_BYTES: Final = 2.0  # results leave in 16 bits, whatever went in
_FALLBACK: Final = {  # what computes a precision that the device lacks
    Precision.FP4: (Precision.FP8, Precision.BF16, Precision.FP16),
    Precision.INT4: (Precision.INT8, Precision.BF16, Precision.FP16),
    Precision.FP8: (Precision.BF16, Precision.FP16),
    Precision.INT8: (Precision.BF16, Precision.FP16),
    Precision.BF16: (Precision.FP16, Precision.FP32),
    Precision.FP16: (Precision.BF16, Precision.FP32),
    Precision.TF32: (Precision.FP32, Precision.FP16),
    Precision.FP32: (),
}


def matmul_seconds(
    m: int,
    n: int,
    k: int,
    device: Device,
    precision: Precision,
    *,
    groups: int = 1,
    weight_bytes: float = 0.0,
    most_bytes_per_s_processor: float = 0.0,
) -> float:
    """Return the seconds of one kernel that multiplies an (m, k) matrix by a (k, n)
    matrix, `groups` times, each time with other weights.

    The result is a smooth maximum of the compute time and the memory time, plus the
    time of an empty kernel. The compute time counts whole waves of tiles over the
    processors. The memory time is the time to read the inputs and write the output
    once. If the device lacks a precision, numbers are stored in it but multiplied in
    the next wider one that the device has.

    Args:
        weight_bytes: bytes of one stored number of the (k, n) operand, if it is stored
            in fewer bytes than it is multiplied in; 0: as `precision`.
        most_bytes_per_s_processor: the highest rate at which the kernel reads on one
            processor; 0: no limit.

    Raises: ValueError if a size is below 1.
    Source: the roofline, doi:10.1145/1498765.1498785; shares: catalog/data/kernels.csv.
    """
    if min(m, n, k, groups) < 1:
        raise ValueError(
            f"each size of a product must be at least 1: {m} x {n} x {k}, {groups} times"
        )
    own_kernels = kernels(device.architecture)
    compute_precision = computed_in(device, precision)
    share = (
        own_kernels.narrow_matmul if compute_precision.bytes < 2 else own_kernels.matmul
    )
    compute = (
        _wave_flops(m, n, groups, device.processors)
        * k
        / (device.flops[compute_precision] * share)
    )
    weights = n * k * (weight_bytes or precision.bytes)
    moved = groups * (m * k * compute_precision.bytes + weights + m * n * _OUTPUT_BYTES)
    rate = device.memory_bytes_per_s * own_kernels.memory
    if most_bytes_per_s_processor:
        rate = min(rate, most_bytes_per_s_processor * device.processors)
    joined: float = (compute**_OVERLAP + (moved / rate) ** _OVERLAP) ** (1 / _OVERLAP)
    return joined + own_kernels.seconds


def streamed_seconds(size_bytes: float, device: Device) -> float:
    """Return the seconds of one kernel that reads and writes `size_bytes` in total and
    computes almost nothing, such as a norm, an activation or an optimizer's update."""
    own_kernels = kernels(device.architecture)
    return (
        size_bytes / (device.memory_bytes_per_s * own_kernels.memory)
        + own_kernels.seconds
    )


def computed_in(device: Device, precision: Precision) -> Precision:
    """Return the precision in which the device multiplies numbers of `precision`: the
    same one if the device has it, else the next wider one that it has.

    Raises: ValueError if the device has none of them.
    """
    if precision in device.flops:
        return precision
    for wider_precision in _FALLBACK[precision]:
        if wider_precision in device.flops:
            return wider_precision
    raise ValueError(
        f"{device.title} supports neither {precision} nor a wider precision"
    )


@lru_cache(maxsize=65536)
def _wave_flops(m: int, n: int, groups: int, processors: int) -> float:
    """Return the FLOPs, per unit of k, that all processors could do while the kernel
    runs. Processors that idle in the last wave count too. The tile size with the lowest
    result is used."""
    least_flops = 0.0
    for tile_rows, wide, share in _TILES:
        tiles = -(-m // tile_rows) * -(-n // wide) * groups
        waves = -(-tiles // processors)
        flops = 2.0 * tile_rows * wide * waves * processors / share
        least_flops = min(least_flops, flops) if least_flops else flops
    return least_flops
