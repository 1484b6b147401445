"""The line with which each program reports the world that it got."""

import os


def report(rank: int, size: int, total: float) -> None:
    """Print the rank, the size, and the sum of a 1 from each rank that was measured by
    a collective operation."""
    gpus = os.environ.get("CUDA_VISIBLE_DEVICES", "")
    node = os.environ.get("CORRAL_NODE", "?")
    print(
        f"WORLD rank={rank} size={size} sum={total:g} node={node} gpus={gpus}",
        flush=True,
    )
