"""The speed that a cluster's storage needs, and how long GPUs wait for slower storage."""

from dataclasses import dataclass
from math import ceil
from typing import Protocol

from corral.catalog.devices import Device
from corral.catalog.equipment import rule

USUAL_PARAMETERS = 70e9
# a parameter in memory, of mixed precision with Adam: arXiv:2205.05198
TRAINED_BYTES = 18.0


class StorageRequest(Protocol):
    """Fields of a cluster request about storage. `ClusterRequest` has fields of the
    same names."""

    @property
    def parameters(self) -> float | None: ...
    @property
    def save_minutes(self) -> float: ...
    @property
    def async_saves(self) -> bool: ...
    @property
    def data_mb_per_gpu_s(self) -> float | None: ...
    @property
    def read_gb_per_s(self) -> float | None: ...
    @property
    def write_gb_per_s(self) -> float | None: ...
    @property
    def idle(self) -> float: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Storage:
    """Storage of a cluster, with rates in GB/s. `need_*`: the rates that keep the GPUs'
    waiting time within the request. `read` and `write`: the actual rates. `built_*`:
    the rates of the appliances that provide them. `data_idle`, `save_idle`: shares of
    the time that GPUs wait for data and for checkpoints."""

    checkpoint_bytes: float
    interval_seconds: float
    async_saves: bool
    data_gb_per_s: float
    need_read: float
    need_write: float
    read: float
    write: float
    servers: int

    @property
    def built_read(self) -> float:
        return self.servers * rule("storage-server", "read")

    @property
    def built_write(self) -> float:
        return self.servers * rule("storage-server", "write")

    @property
    def save_seconds(self) -> float:
        return self.checkpoint_bytes / 1e9 / self.write

    @property
    def load_seconds(self) -> float:
        """Return the time to read a checkpoint back."""
        return self.checkpoint_bytes / 1e9 / self.read

    @property
    def save_idle(self) -> float:
        return save_idle(
            self.save_seconds, self.interval_seconds, async_saves=self.async_saves
        )

    @property
    def data_idle(self) -> float:
        return max(0.0, 1.0 - self.read / self.data_gb_per_s)

    @property
    def idle(self) -> float:
        return 1.0 - (1.0 - self.save_idle) * (1.0 - self.data_idle)


def save_idle(seconds: float, interval_seconds: float, *, async_saves: bool) -> float:
    """Return the share of the time that GPUs stop for checkpoints, which take `seconds`
    and follow each other after `interval_seconds` of work. With `async_saves`, only the
    time by which a checkpoint exceeds the interval counts."""
    stalled = max(0.0, seconds - interval_seconds) if async_saves else seconds
    return stalled / (interval_seconds + stalled)


def plan_storage(
    asked: StorageRequest, gpu: Device, gpus: int, nodes: int, remarks: list[str]
) -> Storage:
    """Return the storage with the requested rates. A rate that is not given is chosen
    so that GPUs wait at most as long as requested."""
    parameters = asked.parameters
    if parameters is None:
        parameters = min(USUAL_PARAMETERS, gpus * gpu.memory_bytes / TRAINED_BYTES)
        remarks.append(
            f"a checkpoint contains {parameters / 1e9:.3g} billion parameters; change it with "
            "--parameters"
        )
    mb_per_gpu_s = asked.data_mb_per_gpu_s
    if mb_per_gpu_s is None:
        mb_per_gpu_s = rule("storage-need", "read") * 1e3
        remarks.append(
            f"a GPU reads {mb_per_gpu_s:g} MB/s of data; change it with --data-mb-per-gpu-s"
        )
    interval = asked.save_minutes * 60
    saved = parameters * rule("checkpoint", "bytes")
    longest = (
        interval if asked.async_saves else interval * asked.idle / (1 - asked.idle)
    )
    need_write = max(saved / 1e9 / longest, gpus * rule("storage-need", "write"))
    need_read = gpus * mb_per_gpu_s / 1e3
    read_gb_per_s = asked.read_gb_per_s or need_read
    write = asked.write_gb_per_s or need_write
    appliances = max(
        ceil(read_gb_per_s / rule("storage-server", "read")),
        ceil(write / rule("storage-server", "write")),
    )
    return Storage(
        checkpoint_bytes=saved,
        interval_seconds=interval,
        async_saves=asked.async_saves,
        data_gb_per_s=need_read,
        need_read=need_read,
        need_write=need_write,
        read=read_gb_per_s,
        write=write,
        servers=0 if nodes == 1 else appliances,
    )
