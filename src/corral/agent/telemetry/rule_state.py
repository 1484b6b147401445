"""State of the signal rules: the conditions that hold now, and values of earlier
samples. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

from corral.domain.node_signal import Signal, SignalKind
from corral.domain.telemetry import GPUS, SENSORS, GpuSample, NodeSample

NO_GPU: Final = frozenset({GPUS, SENSORS})  # then nothing is known of any GPU


def signal(at: float, kind: SignalKind, text: str, **more: Any) -> Signal:
    """Return a signal that has no number yet."""
    return Signal(number=0, at=at, kind=kind, text=text, **more)


@dataclass(frozen=True, slots=True, kw_only=True)
class StandingCondition:
    """A condition of the node or a GPU that holds now. `key` identifies it from one
    sample to the next."""

    key: str
    signal: Signal
    lasting_seconds: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class RulePast:
    """What the signal rules remember of earlier samples. `sample`: the last sample,
    with each GPU's last values in place of missing ones.

    `gpus`: the index of each GPU that was ever seen, by uuid. `links`: NVLinks that
    were ever up, as uuid/link. `ports`: the maximum bit/s of each port that was ever
    up. `written`: paths that were not read-only.
    """

    sample: NodeSample | None = None
    gpus: Mapping[str, int] = field(default_factory=dict)
    links: frozenset[str] = frozenset()
    ports: Mapping[str, float] = field(default_factory=dict)
    written: frozenset[str] = frozenset()

    def after(self, sample: NodeSample) -> "RulePast":
        """Return this state, updated with the new sample."""
        previous_gpus = (
            {gpu.uuid: gpu for gpu in self.sample.gpus} if self.sample else {}
        )
        gpus = tuple(
            _complete_sample(gpu, previous_gpus.get(gpu.uuid)) for gpu in sample.gpus
        )
        ports = dict(self.ports)
        for port in sample.ports:
            if port.up:
                ports[port.name] = max(
                    ports.get(port.name, 0.0), port.bits_per_second or 0.0
                )
        written = {
            disk.path
            for disk in sample.disks
            if disk.total_bytes and not disk.read_only
        }
        return RulePast(
            sample=replace(sample, gpus=gpus),
            gpus={
                **self.gpus,
                **{gpu.uuid: gpu.index for gpu in sample.gpus if gpu.uuid},
            },
            links=self.links
            | {
                f"{gpu.uuid}/{nvlink.link}"
                for gpu in sample.gpus
                for nvlink in gpu.nvlinks
                if nvlink.up
            },
            ports=ports,
            written=self.written | written,
        )


def _complete_sample(gpu: GpuSample, before: GpuSample | None) -> GpuSample:
    """Return the GPU's sample, or the one `before` if the GPU was silent or lost."""
    return before if (gpu.silent or gpu.lost) and before is not None else gpu
