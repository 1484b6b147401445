"""Thresholds above which a sensor reading becomes a signal, each with its source."""

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True, kw_only=True)
class SensorThresholds:
    """Thresholds of the signal rules. Rates are computed over the time between two
    samples.

    Sources: DCGM's passive health checks for NVLink, PCIe and remapped rows (DCGM user
    guide, "Health monitoring"); azurehpc-health-checks and Meta's gcm, which fail a
    node on a port that is down or slower than it was. The other values are Corral's
    choice, such that one unusual reading alone causes no signal.
    """

    # errors from one sample to the next; one alone is corrected and done
    ecc_corrected: int = 100
    pcie_replays_per_minute: float = 8.0  # DCGM
    # a GPU that does less may have slowed its link down to save power
    pcie_load: float = 0.1
    pcie_seconds: float = 30.0
    nvlink_crc_per_second: float = 100.0  # DCGM; replays and recoveries: the first one
    # a GPU that has just been given work may slow down for a moment
    throttle_seconds: float = 60.0
    port_errors_per_second: float = 1.0
    port_slow_seconds: float = 20.0  # a link that comes up may train for a moment
    disk_used: float = 0.95
    clock_seconds: float = 0.5
    clock_lasting_seconds: float = 15.0  # one slow round trip is no offset
    # interval between reports of a lasting condition: health clears the rest
    again_seconds: float = 300.0
    # a driver that has not confirmed a line by then never will
    confirm_seconds: float = 60.0
    # the same report within this time came from another source
    twice_seconds: float = 5.0


LIMITS: Final = SensorThresholds()
HOT: Final = frozenset(
    {"hw_thermal_slowdown", "sw_thermal_slowdown", "hw_power_brake_slowdown"}
)
