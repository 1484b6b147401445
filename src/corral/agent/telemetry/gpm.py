"""Activity of the engines of one GPU by NVML's GPU performance monitoring (GPM).

GPM exists from Hopper on. A value is the mean between two samples of the driver's
counters, so the first reading has none. Source: NVML API reference, "GPM Functions".
"""

from dataclasses import dataclass, field
from typing import Any, Final

import pynvml  # type: ignore[import-untyped]

from corral.agent.telemetry.nvml_call import answer

METRICS: Final = (
    pynvml.NVML_GPM_METRIC_GRAPHICS_UTIL,
    pynvml.NVML_GPM_METRIC_ANY_TENSOR_UTIL,
)


@dataclass(frozen=True, slots=True)
class Activity:
    """Shares of cycles in which the engines were active since the previous reading;
    None where the driver has no value."""

    graphics: float | None = None
    tensor: float | None = None


@dataclass(slots=True)
class EngineActivity:
    """Reader of one GPU's engine activity. It keeps two buffers of the driver: the
    sample of the previous reading, and the newest sample."""

    handle: Any
    _supported: bool | None = None
    _last: Any = None
    _spare: list[Any] = field(default_factory=list)

    def read(self) -> Activity:
        """Return the activity since the previous reading; without values at the first
        reading or without GPM. Raises: GpuLost, Gone."""
        if self._supported is None:
            support = answer("nvmlGpmQueryDeviceSupport", self.handle)
            self._supported = support is not None and bool(support.isSupportedDevice)
        new_sample = self._take_sample() if self._supported else None
        if new_sample is None:
            return Activity()
        previous_sample, self._last = self._last, new_sample
        if previous_sample is None:
            return Activity()
        self._spare.append(previous_sample)
        return _activity_between(previous_sample, new_sample)

    def _take_sample(self) -> Any:
        buffer = self._spare.pop() if self._spare else answer("nvmlGpmSampleAlloc")
        if (
            buffer is None
            or answer("nvmlGpmSampleGet", self.handle, buffer) is not None
        ):
            return buffer
        self._spare.append(buffer)
        return None


def _activity_between(first: Any, second: Any) -> Activity:
    request = pynvml.c_nvmlGpmMetricsGet_t()
    request.version = pynvml.NVML_GPM_METRICS_GET_VERSION
    request.numMetrics = len(METRICS)
    request.sample1, request.sample2 = first, second
    for metric_index, metric in enumerate(METRICS):
        request.metrics[metric_index].metricId = metric
    if answer("nvmlGpmMetricsGet", request) is None:
        return Activity()
    return Activity(
        *(
            _metric_fraction(request.metrics[metric_index])
            for metric_index in range(len(METRICS))
        )
    )


def _metric_fraction(metric: Any) -> float | None:
    percent = float(metric.value)
    if metric.nvmlReturn != pynvml.NVML_SUCCESS or percent != percent:
        return None
    return min(1.0, max(0.0, percent / 100))
