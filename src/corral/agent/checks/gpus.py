"""Checks of a node's GPUs. A node without GPUs checks its CPU and reports that."""

import hashlib
import socket
import struct
import time
from collections.abc import Iterator, Mapping
from importlib.util import find_spec
from statistics import median
from typing import Any, Final

from corral.agent.checks.messages import (
    BYTES_PER_SECOND,
    ON_CPU,
    CheckFinding,
    CheckRequest,
)
from corral.agent.checks.rates import rate_text
from corral.agent.checks.torch_checks import (
    MISSING,
    NO_CUDA,
    NoProof,
    answers,
    begun,
    ended,
    has_gpu_build,
    has_torch,
    proven,
    visible,
)
from corral.domain.active_checks import CheckKind
from corral.domain.matmul_checksums import A_PLACE, B_PLACE, KNOWN, WIDE, answer
from corral.domain.resources import Gpu

ALONE: Final = frozenset({CheckKind.MATMUL, CheckKind.MEMORY})
COPY_BYTES: Final = 64 * 1024 * 1024
COPIES: Final = 8
PURE_SIDE, NUMPY_SIDE = 64, 512


def check_gpus(ask: CheckRequest) -> Iterator[CheckFinding]:
    """Run the checks of each GPU by itself (matrix product, memory), then of the links
    between the GPUs. Yield a finding for each."""
    kinds = [kind for kind in ask.checkup.kinds if kind in ALONE]
    if not ask.gpus:
        yield from on_cpu(kinds, ask.checkup.seconds)
        return
    if not has_torch() or not has_gpu_build():
        reason = NO_CUDA if has_torch() else MISSING
        for gpu in ask.gpus:
            for kind in kinds:
                yield CheckFinding(kind=kind, gpu=gpu.index, text=reason, ran=False)
        return
    if kinds:
        yield from _check_each_gpu(ask, kinds)
    if CheckKind.ALL_REDUCE in ask.checkup.kinds and len(ask.gpus) > 1:
        yield _check_all_reduce(ask)


def _check_each_gpu(
    ask: CheckRequest, kinds: list[CheckKind]
) -> Iterator[CheckFinding]:
    seconds = ask.checkup.seconds
    devices = {f"cuda:{device_index}": gpu for device_index, gpu in enumerate(ask.gpus)}
    probe_arguments = ["products", f"{seconds}", ",".join(kinds), *devices]
    try:
        outcomes = proven(probe_arguments, seconds, visible(ask.gpus))
    except NoProof as trouble:
        for gpu in ask.gpus:
            text = f"GPU {gpu.index}: {trouble}"
            yield CheckFinding(
                kind=kinds[0],
                gpu=gpu.index,
                text=text,
                failed=True if trouble.hangs else None,
                ran=trouble.hangs,
            )
        return
    for outcome in outcomes:
        yield _gpu_finding(outcome, devices[outcome["device"]])


def _gpu_finding(one: Mapping[str, Any], gpu: Gpu) -> CheckFinding:
    if "error" in one:
        text = f"GPU {gpu.index}: {one['error']}"
        return CheckFinding(
            kind=CheckKind(one["kind"]), gpu=gpu.index, text=text, failed=True
        )
    if one["kind"] == CheckKind.MEMORY:
        rate = float(one["bytes_per_second"])
        text = f"GPU {gpu.index}: memory copies run at {rate_text(rate)}"
        return CheckFinding(
            kind=CheckKind.MEMORY,
            gpu=gpu.index,
            text=text,
            value=rate,
            unit=BYTES_PER_SECOND,
        )
    product_count, wrong_count = int(one["made"]), int(one["wrong"])
    text = (
        f"GPU {gpu.index}: {wrong_count:,} of {product_count:,} matrix products are "
        "wrong (silent data corruption)"
        if wrong_count
        else f"GPU {gpu.index}: all {product_count:,} matrix products are correct"
    )
    return CheckFinding(
        kind=CheckKind.MATMUL, gpu=gpu.index, text=text, failed=wrong_count > 0
    )


def _check_all_reduce(ask: CheckRequest) -> CheckFinding:
    """Run an all-reduce over the node's GPUs, with one rank for each GPU."""
    count, seconds = len(ask.gpus), ask.checkup.seconds
    with socket.create_server(("127.0.0.1", 0)) as port_socket:
        port = port_socket.getsockname()[1]
    rendezvous_args = [f"{count}", "127.0.0.1", f"{port}", "nccl", f"{seconds}"]
    env = visible(ask.gpus)
    ranks = [
        begun(["all-reduce", f"{rank}", *rendezvous_args, f"cuda:{rank}"], env)
        for rank in range(count)
    ]
    try:
        outcomes_by_rank = [answers(rank, seconds) for rank in ranks]
    except NoProof as trouble:
        for rank in ranks:
            ended(rank)
        text = f"the all-reduce over the node's {count} GPUs failed: {trouble}"
        return CheckFinding(kind=CheckKind.ALL_REDUCE, text=text, failed=True)
    rate = min(
        float(rank_outcomes[0]["bytes_per_second"])
        for rank_outcomes in outcomes_by_rank
    )
    if not all(rank_outcomes[0]["right"] for rank_outcomes in outcomes_by_rank):
        text = f"the all-reduce over {count} GPUs gave a wrong result"
        return CheckFinding(kind=CheckKind.ALL_REDUCE, text=text, failed=True)
    text = f"all-reduce over {count} GPUs: {rate_text(rate)} (NCCL, bus bandwidth)"
    return CheckFinding(
        kind=CheckKind.ALL_REDUCE, text=text, value=rate, unit=BYTES_PER_SECOND
    )


# -- a machine without a GPU ---------------------------------------------------------------------


def on_cpu(kinds: list[CheckKind], seconds: float) -> Iterator[CheckFinding]:
    if CheckKind.MATMUL in kinds:
        yield _cpu_products(seconds)
    if CheckKind.MEMORY in kinds:
        rate = copies()
        text = f"no GPU: memory copies on the CPU run at {rate_text(rate)}"
        unit = BYTES_PER_SECOND + ON_CPU
        yield CheckFinding(kind=CheckKind.MEMORY, text=text, value=rate, unit=unit)


def _cpu_products(seconds: float) -> CheckFinding:
    math_library, side = (
        ("NumPy", NUMPY_SIDE) if find_spec("numpy") else ("Python", PURE_SIDE)
    )
    product_count = wrong_count = 0
    deadline = time.monotonic() + seconds
    while product_count == 0 or time.monotonic() < deadline:
        digest = (
            hash_by_numpy(side) if math_library == "NumPy" else hash_by_python(side)
        )
        wrong_count += digest != KNOWN[WIDE, side, side]
        product_count += 1
    text = (
        f"no GPU: {wrong_count} of {product_count} matrix products on the CPU are wrong "
        "(silent data corruption)"
        if wrong_count
        else f"no GPU: all {product_count} matrix products on the CPU are correct "
        f"({math_library})"
    )
    return CheckFinding(kind=CheckKind.MATMUL, text=text, failed=wrong_count > 0)


def hash_by_python(side: int) -> str:
    product = list(answer(WIDE, side, side))
    return hashlib.sha256(struct.pack(f"<{len(product)}i", *product)).hexdigest()


def hash_by_numpy(side: int) -> str:
    import numpy as np

    row, column = np.arange(side)[:, None], np.arange(side)[None, :]

    def matrix(place: tuple[int, int, int]) -> Any:
        by_row, by_column, by_both = place
        mixed = by_row * row + by_column * column + (row * column) % by_both
        return (mixed % WIDE - WIDE // 2).astype(np.float32)

    return hashlib.sha256(
        (matrix(A_PLACE) @ matrix(B_PLACE)).astype("<i4").tobytes()
    ).hexdigest()


def copies() -> float:
    """Measure the memory bandwidth of one CPU thread: return the bytes that it reads
    and writes per second while it copies."""
    source, target = bytearray(COPY_BYTES), memoryview(bytearray(COPY_BYTES))
    took = []
    for _ in range(COPIES):
        began = time.perf_counter()
        target[:] = source
        took.append(time.perf_counter() - began)
    return 2 * COPY_BYTES / median(took[1:])
