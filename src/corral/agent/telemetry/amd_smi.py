"""Readings that only AMD's library provides, if it is installed: throttling and energy.

The library is loaded in the sensor reader, never in the agent, because it may hang or
crash its process. Source: AMD SMI Python API reference, amdsmi_get_violation_status,
amdsmi_get_energy_count.
"""

import importlib
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Final

# In the words of NVML, so that thresholds and tables hold for both.
THROTTLE: Final = {
    "active_ppt_pwr": "sw_power_cap",
    "active_prochot_thrm": "hw_thermal_slowdown",
    "active_socket_thrm": "hw_thermal_slowdown",
    "active_vr_thrm": "hw_thermal_slowdown",
    "active_hbm_thrm": "hw_thermal_slowdown",
}


@dataclass(slots=True)
class AmdSmi:
    """AMD's library, which is loaded at the first read. `name` is the module's name;
    tests use another one."""

    name: str = "amdsmi"
    _library: Any = None
    _handles: Mapping[str, Any] | None = field(default=None)

    def read(self, bus: str) -> tuple[tuple[str, ...], float | None]:
        """Return the throttle reasons of the GPU at this PCI address, and the energy
        that it has used, in joules; nothing and None if unknown."""
        if self._handles is None:
            self._handles = self._open()
        handle = self._handles.get(bus.lower())
        if handle is None:
            return (), None
        active = self._ask("amdsmi_get_violation_status", handle)
        reasons = {THROTTLE[name] for name in THROTTLE if active.get(name) is True}
        energy = self._ask("amdsmi_get_energy_count", handle)
        ticks = energy.get("energy_accumulator", energy.get("power"))
        micro = energy.get("counter_resolution")
        is_known = isinstance(ticks, int) and isinstance(micro, int | float)
        return tuple(sorted(reasons)), ticks * micro / 1e6 if is_known else None

    def _open(self) -> Mapping[str, Any]:
        """Return the library's handles of the GPUs by their PCI address; none where the
        library is not installed or has no driver."""
        with suppress(Exception):
            self._library = importlib.import_module(self.name)
            self._library.amdsmi_init()
            address_reader: Callable[[Any], str] = (
                self._library.amdsmi_get_gpu_device_bdf
            )
            handles = self._library.amdsmi_get_processor_handles()
            return {address_reader(handle).lower(): handle for handle in handles}
        return {}

    def _ask(self, what: str, handle: Any) -> Mapping[str, Any]:
        # an older library has no such call, an older GPU no such counter
        with suppress(Exception):
            answer: Mapping[str, Any] = getattr(self._library, what)(handle)
            return answer
        return {}
