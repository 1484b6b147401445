"""Confirmation of faults in the kernel's log by the GPUs' driver.

A line of the log alone never ends a job: users can influence what the kernel prints,
but not the answers of NVML. A line is confirmed by an event of the driver with the same
code, or by a sample in which the GPU is lost, silent or damaged.
"""

from collections.abc import Iterable, Mapping
from dataclasses import replace

from corral.domain.node_signal import UNCORRECTED, Signal, SignalKind
from corral.domain.telemetry import NodeSample

_HURT = frozenset(
    {SignalKind.GPU_LOST, SignalKind.SILENT, SignalKind.REMAP, SignalKind.NVLINK}
)


def confirmed_by(
    waiting: Mapping[str, Signal], sample: NodeSample, found: Iterable[Signal]
) -> dict[str, Signal]:
    """Return the waiting signals that the sample confirms, by their keys.

    Args:
        waiting: signals from the kernel's log that the driver has not confirmed.
        found: signals that result from this sample and the one before it.
    """
    hurt = {fault_signal.gpu for fault_signal in found if _is_hurt(fault_signal)} - {
        None
    }
    hurt |= {
        gpu.index for gpu in sample.gpus if gpu.lost or gpu.silent or gpu.needs_recovery
    }
    return {
        key: replace(signal, confirmed=True)
        for key, signal in waiting.items()
        if signal.gpu in hurt or (signal.gpu is None and hurt)
    }


def _is_hurt(signal: Signal) -> bool:
    is_ecc = signal.kind == SignalKind.ECC and signal.code == UNCORRECTED
    return is_ecc or signal.kind in _HURT
