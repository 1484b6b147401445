"""NVIDIA's GPUs, each read in its own thread, and the events (XIDs) of their driver."""

import ctypes
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any, Final

import pynvml  # type: ignore[import-untyped]

from corral.agent.clocks import wall
from corral.agent.telemetry.guarded_call import GuardedCall
from corral.agent.telemetry.messages import Happening, HeldAttempt
from corral.agent.telemetry.nvml import NvmlDevice, devices
from corral.agent.telemetry.nvml_call import DriverGone, GpuLost
from corral.domain.node_signal import XID_RECOVERY, SignalKind
from corral.domain.observed_state import AttemptKey
from corral.domain.telemetry import GpuSample

LOOK_AGAIN_SECONDS: Final = 60.0  # for a driver where there was none
OPEN_AGAIN_SECONDS: Final = 300.0  # when a GPU is lost, or the driver was restarted
WAIT_MILLISECONDS: Final = 60_000
PAUSE_SECONDS: Final = 5.0  # when the driver does not wait
# In the words of the kernel's log. Source: NVML API reference,
# nvmlDeviceGpuRecoveryAction_t.
RECOVERIES: Final = (
    "None",
    "GPU Reset",
    "Node Reboot",
    "Drain P2P",
    "Drain and Reset",
    "Recover IMEX Domain",
    "Bus Reset",
    "System Reboot",
)


@dataclass(slots=True)
class Nvidia:
    """Reader of the `chosen` NVIDIA GPUs by their driver. `numbers`: Corral's indices
    of these GPUs; None numbers them from 0.

    `tell` is called with each fault, in another thread. `gone`: whether the reader
    should restart as a new process, because a driver cannot be closed safely while
    another thread uses it.
    """

    chosen: tuple[int, ...] | None
    tell: Callable[[Happening], None]
    numbers: tuple[int, ...] | None = None
    devices: tuple[NvmlDevice, ...] = ()
    _opening: GuardedCall[tuple[NvmlDevice, ...]] = field(init=False)
    _parts: list[GuardedCall[GpuSample]] = field(default_factory=list)
    _opened_at: float = float("-inf")
    _hurt_at: float | None = None
    _hangs_at: float = float("-inf")
    _listens: bool = False
    _said: str = ""

    def __post_init__(self) -> None:
        self._opening = GuardedCall(lambda: devices(self.chosen, self.numbers))

    def begin(
        self, held: Sequence[HeldAttempt], shims: Mapping[int, AttemptKey]
    ) -> None:
        if (
            not self.devices
            and time.monotonic() - self._opened_at >= LOOK_AGAIN_SECONDS
        ):
            self._opening.begin()
        for device_call in self._parts:
            device_call.begin()

    def end(self, deadline: float) -> tuple[tuple[GpuSample, ...], bool]:
        """Return a sample of each GPU, and whether the whole driver is silent."""
        if not self.devices and not self._opened(deadline):
            return (), True
        return tuple(
            self._sample_device(device_index, deadline)
            for device_index in range(len(self.devices))
        ), False

    def gone(self) -> bool:
        long_ago = time.monotonic() - OPEN_AGAIN_SECONDS
        hurt = self._hurt_at is not None and self._hurt_at <= long_ago
        # a thread that hangs there keeps it from ending
        return hurt and self._hangs_at <= long_ago

    def confirms(self) -> bool:
        return self._listens

    def at(self, bus: tuple[int, int, int]) -> int | None:
        """Return Corral's index of the GPU at this PCI address; None if no GPU is
        there."""
        return next(
            (device.index for device in self.devices if device.bus == bus), None
        )

    def _opened(self, deadline: float) -> bool:
        if time.monotonic() - self._opened_at < LOOK_AGAIN_SECONDS:
            return True  # there were none a moment ago
        try:
            nvml_devices = self._opening.end(deadline - time.monotonic())
        except RuntimeError as trouble:
            self._say(str(trouble))
            return False
        if nvml_devices is None:
            return False
        self._opened_at, self.devices = time.monotonic(), nvml_devices
        self._parts = [GuardedCall(device.read) for device in nvml_devices]
        for device_call in self._parts:
            device_call.begin()
        if nvml_devices:
            threading.Thread(target=self._follow_xid_events, daemon=True).start()
        return True

    def _sample_device(self, at: int, deadline: float) -> GpuSample:
        device = self.devices[at]
        bare = GpuSample(index=device.index, uuid=device.uuid, type=device.type)
        try:
            gpu_sample = self._parts[at].end(deadline - time.monotonic())
        except (GpuLost, DriverGone) as trouble:
            self._hurt_at = self._hurt_at or time.monotonic()
            is_lost = isinstance(trouble, GpuLost)
            return replace(bare, lost=is_lost, silent=not is_lost)
        if gpu_sample is None:
            self._hangs_at = time.monotonic()
        return gpu_sample or replace(bare, silent=True)

    def _follow_xid_events(self) -> None:
        """Report each XID event as it arrives. Return at once where the driver does not
        support events."""
        try:
            event_set = pynvml.nvmlEventSetCreate()
            for device in self.devices:
                self._register_events(device, event_set)
        except pynvml.NVMLError as trouble:
            self._say(f"XID events cannot be read from NVML: {trouble}")
            return
        self._listens = True
        while True:
            try:
                event = pynvml.nvmlEventSetWait_v2(event_set, WAIT_MILLISECONDS)
            except pynvml.NVMLError as trouble:
                if trouble.value != pynvml.NVML_ERROR_TIMEOUT:
                    time.sleep(PAUSE_SECONDS)
                continue
            if event.eventType == pynvml.nvmlEventTypeXidCriticalError:
                self.tell(self._xid_happening(int(event.eventData), event.device))

    def _register_events(self, device: NvmlDevice, waiting: Any) -> None:
        try:
            pynvml.nvmlDeviceRegisterEvents(
                device.handle, pynvml.nvmlEventTypeXidCriticalError, waiting
            )
        except pynvml.NVMLError as trouble:
            self._say(f"XID events of GPU {device.index} cannot be read: {trouble}")

    def _xid_happening(self, code: int, handle: Any) -> Happening:
        """Return the XID event as a Happening, worded as in the kernel log."""
        address = ctypes.cast(handle, ctypes.c_void_p).value
        matching_devices = (
            nvml_device
            for nvml_device in self.devices
            if address == _handle_address(nvml_device)
        )
        device = next(matching_devices, None)
        gpu = None if device is None else device.index
        name = "a GPU" if gpu is None else f"GPU {gpu}"
        recovery = (
            _recovery_action(device)
            if code == XID_RECOVERY and device is not None
            else ""
        )
        return Happening(
            at=wall(),
            kind=SignalKind.XID,
            text=f"{name}: XID {code}" + (f": {recovery}" if recovery else ""),
            code=code,
            gpu=gpu,
            recovery=recovery,
        )

    def _say(self, trouble: str) -> None:
        """Write a problem to the agent's log, once."""
        if trouble != self._said:
            self._said = trouble
            print(trouble, file=sys.stderr, flush=True)


def _handle_address(device: NvmlDevice) -> int | None:
    return ctypes.cast(device.handle, ctypes.c_void_p).value


def _recovery_action(device: NvmlDevice) -> str:
    """Return the recovery action that the driver advises now."""
    with suppress(GpuLost, DriverGone):
        action_code = device.asked.fields(pynvml.NVML_FI_DEV_GET_GPU_RECOVERY_ACTION)[0]
        return (
            RECOVERIES[action_code]
            if action_code is not None and action_code < len(RECOVERIES)
            else ""
        )
    return ""
