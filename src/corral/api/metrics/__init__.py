"""`/metrics`: the metrics of the head, and the metrics of all GPUs under the names of
NVIDIA's exporter."""

from corral.api.metrics.route import router

__all__ = ["router"]
