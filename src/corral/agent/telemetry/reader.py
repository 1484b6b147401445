"""A long-lived helper process of the agent: it reads the sensors on request, and is
killed when it hangs.

`python -m corral.agent.telemetry.reader NODE_DIR` answers each line of its standard
input, a SampleRequest, with a SensorReading, and exits when its input ends. Calls that
may hang (drivers, network file systems) run in threads; a source that has not answered
in time is marked as silent in the reading, and is not called again until it answers.
"""

import ctypes
import os
import sys
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

import msgspec

from corral.agent.clocks import wall
from corral.agent.settings import load_settings
from corral.agent.telemetry.guarded_call import GuardedCall
from corral.agent.telemetry.kernel_log import KernelLog
from corral.agent.telemetry.machine import MachineSensors, disk
from corral.agent.telemetry.messages import (
    Happening,
    HeldAttempt,
    Said,
    SampleRequest,
    SensorReading,
)
from corral.agent.telemetry.network_ports import ports
from corral.agent.telemetry.process_owner import attributed, shims
from corral.agent.telemetry.sources import GpuSource, source_of
from corral.domain.pilot import is_part, key_of
from corral.domain.telemetry import (
    GPUS,
    PORTS,
    DiskSample,
    GpuSample,
    NodeSample,
    PortSample,
)
from corral.wire.node import NodeSettings

PART_SECONDS: Final = 3.0  # in which each driver and each file system must answer
NICE: Final = 10  # the ranks go first
PRETEND_LOG: Final = "kernel.log"  # in the node's folder: simulated kernel messages
KERNEL_LOG: Final = Path("/dev/kmsg")
_saying: Final = threading.Lock()


@dataclass(slots=True)
class SensorReader:
    """Reader of all sensors of the node."""

    node_dir: Path
    settings: NodeSettings
    tell: Callable[[Happening], None]
    seconds: float = PART_SECONDS
    machine: MachineSensors = field(init=False)
    source: GpuSource = field(init=False)
    _disks: dict[str, GuardedCall[DiskSample]] = field(default_factory=dict)
    _ports: GuardedCall[tuple[PortSample, ...]] = field(init=False)
    _log: KernelLog | None = None
    _read_at: float | None = None

    def __post_init__(self) -> None:
        root = Path(self.settings.sensors_root)
        self.machine = MachineSensors(root)
        self.source = source_of(self.settings, self.node_dir, self.tell)
        self._ports = GuardedCall(lambda: ports(root))
        if (log := kernel_log(self.settings, self.node_dir)) is not None:
            self._log = KernelLog(log, self.source.at, self.tell, self.source.confirms)
        own_dir = self.node_dir.parent if is_part(self.settings.node) else self.node_dir
        for path in dict.fromkeys(
            (str(own_dir), *self.settings.shared)
        ):  # a part's folder goes with it
            self._disks[path] = GuardedCall(lambda path=path: disk(path))  # type: ignore[misc]

    def read(self, ask: SampleRequest) -> SensorReading:
        """Return a reading of all sensors now, with the position up to which the
        kernel's log has been read."""
        started = time.monotonic()
        deadline = started + self.seconds
        self._ports.begin()
        for disk_call in self._disks.values():
            disk_call.begin()
        gpus, silent = self._gpus(ask.held, deadline)
        # it names GPUs by their place on the bus, which is known now
        if self._log is not None:
            self._log.follow(ask.after)
        disks = tuple(self._disk(path, deadline) for path in self._disks)
        found_ports = self._ports.end(deadline - time.monotonic())
        if found_ports is None:
            silent.append(PORTS)
        silent += [disk_sample.path for disk_sample in disks if disk_sample.silent]
        used_memory_bytes, total = self.machine.memory()
        seconds = started - self._read_at if self._read_at is not None else 0.0
        self._read_at = started
        sample = NodeSample(
            at=wall(),
            seconds=round(seconds, 3),
            cpu_utilisation=self.machine.cpu.read(),
            memory_used_bytes=used_memory_bytes,
            memory_total_bytes=total,
            pressure_cpu=self.machine.pressure("cpu"),
            pressure_memory=self.machine.pressure("memory"),
            pressure_io=self.machine.pressure("io"),
            gpus=gpus,
            ports=found_ports or (),
            disks=disks,
            silent=tuple(silent),
        )
        return SensorReading(
            sample=sample, place=None if self._log is None else self._log.place
        )

    def is_spent(self) -> bool:
        """Return whether a new reader process would see more."""
        return self.source.gone()

    def _disk(self, path: str, deadline: float) -> DiskSample:
        try:
            disk_sample = self._disks[path].end(deadline - time.monotonic())
        except OSError:
            return DiskSample(path=path)
        return disk_sample or DiskSample(path=path, silent=True)

    def _gpus(
        self, held: Sequence[HeldAttempt], deadline: float
    ) -> tuple[tuple[GpuSample, ...], list[str]]:
        """Return a sample of each GPU with the owners of its processes, and the names
        of the sensors that do not respond."""
        known_shims, granted = (
            shims(self.node_dir / "attempts"),
            key_of(self.settings.node),
        )
        self.source.begin(held, known_shims)
        gpu_samples, silent = self.source.end(deadline)
        owned_samples = (
            replace(
                gpu_sample,
                processes=attributed(gpu_sample.processes, known_shims, granted),
            )
            for gpu_sample in gpu_samples
        )
        return tuple(owned_samples), [GPUS] * silent


def kernel_log(settings: NodeSettings, node_dir: Path) -> Path | None:
    """Return the path of the machine's kernel log; None if the settings disable it.

    For a pretend node, return a file in its folder, which may not exist.
    """
    if settings.kernel_log is not None:
        return Path(settings.kernel_log) if settings.kernel_log else None
    return KERNEL_LOG if settings.pretend_gpus is None else node_dir / PRETEND_LOG


def say(word: Said) -> None:
    """Send a message to the agent. Callable from any thread."""
    line = msgspec.json.encode(word) + b"\n"
    with _saying:
        while line:
            line = line[os.write(1, line) :]


def main() -> None:
    node_dir = Path(sys.argv[1])
    ctypes.CDLL(None).prctl(15, b"corral-sensors", 0, 0, 0)
    with suppress(OSError):
        os.nice(NICE)
    reader = SensorReader(node_dir, load_settings(node_dir), say)
    for line in sys.stdin.buffer:
        say(reader.read(msgspec.json.decode(line, type=SampleRequest)))
        if reader.is_spent():
            break
    os._exit(0)  # a thread that hangs in a driver would keep an ordinary exit waiting


if __name__ == "__main__":
    main()
