"""Active checks of GPUs and their links. The node's agent starts them as processes,
which print their results as JSON lines.

`python -m corral.train.device_checks products SECONDS KINDS DEVICE...` multiplies
matrices with a known result on all devices at once, then copies their memory. `python
-m corral.train.device_checks all-reduce RANK WORLD ADDRESS PORT BACKEND SECONDS DEVICE`
is one rank of an all-reduce.
"""

import ctypes
import hashlib
import json
import os
import signal
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from statistics import median
from typing import Any, Final, TypeVar

import torch
import torch.distributed as dist

from corral.domain.matmul_checksums import (
    A_PLACE,
    B_PLACE,
    KNOWN,
    NARROW,
    NARROW_INNER,
    WIDE,
)

SIDE: Final = {"cuda": 2048, "cpu": 512}
COPY_BYTES: Final = {"cuda": 2 * 1024**3, "cpu": 128 * 1024**2}
COPIES: Final = 16
REDUCE_BYTES: Final = {"nccl": 512 * 1024**2, "gloo": 32 * 1024**2}
MEET_SECONDS: Final = 60.0
MAKE_AT_ONCE: Final = 8
PR_SET_PDEATHSIG: Final = 1
T = TypeVar("T")
R = TypeVar("R")


def main(words: Sequence[str]) -> None:
    # it goes with who has asked
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    match words:
        case ["products", seconds, kinds, *devices]:
            products(
                [torch.device(device_name) for device_name in devices],
                float(seconds),
                kinds.split(","),
            )
        case ["all-reduce", rank, world, address, port, backend, seconds, device]:
            check_place = CheckPlace(int(rank), int(world), address, int(port))
            all_reduce(check_place, backend, float(seconds), torch.device(device))
        case _:
            sys.exit(f"invalid arguments: {' '.join(words)}")


def say(**found: Any) -> None:
    print(json.dumps(found), flush=True)


# -- products ------------------------------------------------------------------------------------


@dataclass(slots=True)
class Proof:
    """A check of one device by one matrix multiplication: its factors, and the known
    result."""

    device: torch.device
    left: torch.Tensor
    right: torch.Tensor
    known: torch.Tensor
    wrong: torch.Tensor  # how many products had another answer
    made: int = 0

    def make(self) -> None:
        """Start one more multiplication and the comparison of its result, without
        waiting for it."""
        self.wrong += ((self.left @ self.right) != self.known).any()
        self.made += 1


def matrix(
    place: tuple[int, int, int], values: int, rows: int, columns: int
) -> torch.Tensor:
    """Return the matrix of whole numbers that `domain.matmul_checksums` defines.
    `place`: its factors."""
    by_row, by_column, by_both = place
    row = torch.arange(rows)[:, None]
    column = torch.arange(columns)[None, :]
    mixed = by_row * row + by_column * column + (row * column) % by_both
    return mixed % values - values // 2


def hash_of(product: torch.Tensor) -> str:
    integer_product = product.to(torch.float64).cpu().to(torch.int32)
    return hashlib.sha256(integer_product.numpy().astype("<i4").tobytes()).hexdigest()


def proofs_of(device: torch.device) -> list[Proof]:
    """Return one multiplication check for each number format in which this device is
    used.

    Raises: RuntimeError if the CPU computes the expected result wrongly.
    """
    side = SIDE[device.type]
    shapes = [(WIDE, side, side, torch.float32)]
    if device.type == "cuda":
        shapes += [
            (NARROW, side, NARROW_INNER, torch.bfloat16),
            (NARROW, side, NARROW_INNER, torch.float16),
        ]
    proofs = []
    for values, rows, inner, kind in shapes:
        tensor, right_matrix = (
            matrix(A_PLACE, values, rows, inner),
            matrix(B_PLACE, values, inner, rows),
        )
        exact_product = tensor.to(torch.float32) @ right_matrix.to(torch.float32)
        if hash_of(exact_product) != KNOWN[values, rows, inner]:
            raise RuntimeError("the CPU computed a wrong matrix product")
        proofs.append(
            Proof(
                device=device,
                left=tensor.to(device, kind),
                right=right_matrix.to(device, kind),
                known=exact_product.to(device, kind),
                wrong=torch.zeros((), dtype=torch.int64, device=device),
            )
        )
    return proofs


def products(
    devices: Sequence[torch.device], seconds: float, kinds: Sequence[str]
) -> None:
    """Check the devices by matrix multiplication and memory copies (`kinds`), all at
    once, which is also the highest load on the power and cooling of the node.

    Raises: RuntimeError if a device cannot be used at all; a later failure is reported
    as a result.
    """
    for device in devices:
        torch.zeros(1, device=device)
    # the tensor cores, which hold these exactly
    torch.backends.cuda.matmul.allow_tf32 = True
    proven = {
        device: _run_device_check(proofs_of, device, "matmul") for device in devices
    }
    proofs = {
        device: device_proofs
        for device, device_proofs in proven.items()
        if device_proofs
    }
    if "matmul" in kinds:
        deadline = time.monotonic() + seconds
        while proofs and time.monotonic() < deadline:
            proofs = {
                device: device_proof
                for device, device_proof in proofs.items()
                if _run_device_check(_run_proof_round, device_proof, "matmul")
            }
        for remaining_proofs in proofs.values():
            _run_device_check(_report_proofs, remaining_proofs, "matmul")
    proofs.clear()
    proven.clear()
    if "memory" in kinds:
        for device in devices:
            if rate := _run_device_check(copies, device, "memory"):
                say(kind="memory", device=str(device), bytes_per_second=rate)


def _run_device_check(do: Callable[[T], R], on: T, kind: str) -> R | None:
    """Run `do(on)`, one step of a check, and return its result. If the device fails,
    report the failure and return None."""
    try:
        return do(on)
    except RuntimeError as error:
        device = on[0].device if isinstance(on, list) else on
        say(kind=kind, device=str(device), error=str(error).splitlines()[0][:300])
        return None


def _run_proof_round(proofs: list[Proof]) -> bool:
    """Start a few multiplications of each kind, and wait for them. Return True, which
    means that no error occurred."""
    for proof in proofs:
        for _ in range(MAKE_AT_ONCE):
            proof.make()
    _time_after_sync(proofs[0].device)
    return True


def _report_proofs(proofs: list[Proof]) -> bool:
    """Check each multiplication once more by its hash. Report the results, with those
    that were compared on the device. Return True."""
    wrong_count = sum(int(proof.wrong) for proof in proofs)
    wrong_count += sum(
        hash_of(proof.left @ proof.right) != hash_of(proof.known) for proof in proofs
    )
    product_count = sum(proof.made for proof in proofs) + len(proofs)
    say(
        kind="matmul",
        device=str(proofs[0].device),
        wrong=wrong_count,
        made=product_count,
    )
    return True


def copies(device: torch.device) -> float:
    """Return the memory bandwidth in bytes a second, from the median of several large
    copies."""
    size = COPY_BYTES[device.type]
    if device.type == "cuda":
        free_bytes, _ = torch.cuda.mem_get_info(device)
        size = min(size, free_bytes // 4)
    source = torch.ones(size, dtype=torch.uint8, device=device)
    target = torch.empty_like(source)
    took = []
    for _ in range(COPIES):
        began = _time_after_sync(device)
        target.copy_(source)
        took.append(_time_after_sync(device) - began)
    return 2 * size / median(took[1:])


def _time_after_sync(device: torch.device) -> float:
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return time.perf_counter()


# -- all-reduce ----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class CheckPlace:
    rank: int
    world: int
    address: str
    port: int


def all_reduce(
    place: CheckPlace, backend: str, seconds: float, device: torch.device
) -> None:
    """Run all-reduces as one rank, and report the bus bandwidth by the slowest rank: 2
    (n - 1) / n of the bytes of each rank, for n ranks."""
    if device.type == "cuda":
        torch.cuda.set_device(device)
    if place.address.startswith("127."):
        os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    host = f"[{place.address}]" if ":" in place.address else place.address
    dist.init_process_group(
        backend,
        init_method=f"tcp://{host}:{place.port}",
        rank=place.rank,
        world_size=place.world,
        timeout=timedelta(seconds=MEET_SECONDS),
    )
    size = REDUCE_BYTES[backend]
    ones = torch.ones(size // 4, dtype=torch.float32, device=device)
    is_correct, took = True, []
    deadline = time.monotonic() + seconds
    while True:
        tensor = ones.clone()
        dist.barrier()
        began = _time_after_sync(device)
        dist.all_reduce(tensor)
        spent = torch.tensor(
            [_time_after_sync(device) - began], dtype=torch.float64, device=device
        )
        dist.all_reduce(spent, dist.ReduceOp.MAX)
        is_correct = is_correct and bool((tensor == float(place.world)).all())
        took.append(float(spent))
        deadline_flag = torch.tensor(
            [float(time.monotonic() >= deadline)], device=device
        )
        dist.all_reduce(
            deadline_flag, dist.ReduceOp.MAX
        )  # all of them end with the same one
        if bool(deadline_flag) and len(took) > 2:
            break
    rate = 2 * (place.world - 1) / place.world * size / median(took[1:])
    say(kind="all-reduce", bytes_per_second=rate, right=is_correct, times=len(took))
    dist.destroy_process_group()


if __name__ == "__main__":
    main(sys.argv[1:])
