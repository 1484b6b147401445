"""Programs for a GPU: `busy SECONDS SECONDS` computes and then rests; `bad-address` fails."""

import sys
import time

import torch

SIZE = 8192


def compute_then_rest(busy_seconds: float, rest_seconds: float) -> None:
    a = torch.randn(SIZE, SIZE, device="cuda", dtype=torch.bfloat16)
    end = time.monotonic() + busy_seconds
    while time.monotonic() < end:
        for _ in range(20):
            a = (a @ a).clamp_(-1, 1)
        torch.cuda.synchronize()
    time.sleep(rest_seconds)


def read_bad_address() -> None:
    """A kernel reads where nothing is mapped: the driver reports an MMU fault, XID 31 (or 13), of
    this process alone. Source: NVIDIA, "XID Errors", docs.nvidia.com/deploy/xid-errors."""
    read = torch.cuda.jiterator._create_jit_fn(
        "template <typename T> T read(T x) { return *reinterpret_cast<volatile T*>(0x100000); }"
    )
    print(read(torch.zeros(16, device="cuda")).sum().item())


if __name__ == "__main__":
    if sys.argv[1] == "busy":
        compute_then_rest(float(sys.argv[2]), float(sys.argv[3]))
    else:
        read_bad_address()
