"""One call to NVML about one GPU: it returns an answer or None, or reports that the GPU
is lost."""

from dataclasses import dataclass
from typing import Any, Final

import pynvml  # type: ignore[import-untyped]

_LOST: Final = (pynvml.NVML_ERROR_GPU_IS_LOST, pynvml.NVML_ERROR_RESET_REQUIRED)
_GONE: Final = (pynvml.NVML_ERROR_UNINITIALIZED, pynvml.NVML_ERROR_DRIVER_NOT_LOADED)
_VALUES: Final = {
    pynvml.NVML_VALUE_TYPE_DOUBLE: "dVal",
    pynvml.NVML_VALUE_TYPE_UNSIGNED_INT: "uiVal",
    pynvml.NVML_VALUE_TYPE_UNSIGNED_LONG: "ulVal",
    pynvml.NVML_VALUE_TYPE_UNSIGNED_LONG_LONG: "ullVal",
    pynvml.NVML_VALUE_TYPE_SIGNED_LONG_LONG: "sllVal",
}


class GpuLost(Exception):
    """The GPU has fallen off the bus, or does not work until it is reset."""


class DriverGone(Exception):
    """The driver was removed or restarted: it must be opened again."""


def answer(function: str, *arguments: Any) -> Any:
    """Return the result of the NVML function; None where it has no result.

    Raises: GpuLost, Gone.
    """
    try:
        return getattr(pynvml, function)(*arguments)
    except pynvml.NVMLError as trouble:
        _raise_if_lost(trouble.value)
        return None


@dataclass(slots=True)
class NvmlCall:
    handle: Any

    def ask(self, what: str, *more: Any) -> Any:
        """Return the result of NVML's function `nvmlDeviceGet` + `what` for this GPU,
        called with the further arguments `more`; None if it is unknown. Raises:
        GpuLost, Gone."""
        return answer(f"nvmlDeviceGet{what}", self.handle, *more)

    def fields(self, *wanted: int | tuple[int, int]) -> list[Any]:
        """Return the values of fields, each given by its number or by number and scope;
        None for each unknown value.

        Raises: GpuLost, Gone.
        """
        try:
            field_values = pynvml.nvmlDeviceGetFieldValues(self.handle, wanted)
        except pynvml.NVMLError as trouble:
            _raise_if_lost(trouble.value)
            return [None] * len(wanted)
        return [
            None
            if field_value.nvmlReturn != pynvml.NVML_SUCCESS
            or field_value.valueType not in _VALUES
            else getattr(field_value.value, _VALUES[field_value.valueType])
            for field_value in field_values
        ]


def _raise_if_lost(code: int) -> None:
    if code in _LOST:
        raise GpuLost
    if code in _GONE:
        raise DriverGone
