"""`/metrics`: the head's own series, and those of all GPUs under the names of NVIDIA's
exporter."""

from corral.api.metrics.route import router

__all__ = ["router"]
