"""The gang of ranks: its process group, the device of this rank, and separate groups
for communication that does not disturb training."""

import ipaddress
import os
import socket
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final

import torch
import torch.distributed as dist

from corral.train.rank_settings import Settings

QUIET_TIMEOUT: Final = timedelta(minutes=30)  # a save of any size ends sooner


def choose_device(settings: Settings) -> torch.device:
    """Return the GPU of this rank if the rank has a real one, else the CPU."""
    if settings.pretend_gpus or not torch.cuda.is_available():
        return torch.device("cpu")
    index = settings.local_rank % torch.cuda.device_count()
    torch.cuda.set_device(index)
    return torch.device("cuda", index)


def join_gang(settings: Settings, device: torch.device) -> None:
    """Join the process group that the environment describes. A single rank forms a
    group of one, without a port.

    A process group that the script has already created is left unchanged.
    """
    if dist.is_initialized():
        return
    backend = "cpu:gloo,cuda:nccl" if device.type == "cuda" else "gloo"
    if settings.world_size == 1:
        store = dist.HashStore()  # type: ignore[attr-defined] # torch's stubs forget it
        dist.init_process_group(backend, store=store, rank=0, world_size=1)
        return
    if _is_loopback(settings.master_address):
        # a host name may lead elsewhere
        os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    dist.init_process_group(backend, init_method="env://")


def leave_gang() -> None:
    """Destroy the process group at a regular end."""
    if dist.is_initialized():
        with suppress(RuntimeError):  # a peer that left first
            dist.destroy_process_group()


def _is_loopback(address: str) -> bool:
    with suppress(ValueError, OSError):
        return ipaddress.ip_address(socket.gethostbyname(address)).is_loopback
    return False


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessGroup:
    """A gloo group of all ranks, for the communication of one thread. With a world size
    of one, no real group is created."""

    rank: int
    world_size: int
    group: dist.ProcessGroup | None = None

    @property
    def leads(self) -> bool:
        return self.rank == 0

    @staticmethod
    def gather_around(timeout: timedelta = QUIET_TIMEOUT) -> "ProcessGroup":
        """Create a new group of all ranks. Every rank must call this, in the same order
        if there are several groups."""
        rank, world_size = dist.get_rank(), dist.get_world_size()
        group = (
            dist.new_group(backend="gloo", timeout=timeout) if world_size > 1 else None
        )
        return ProcessGroup(rank=rank, world_size=world_size, group=group)

    def gather(self, value: Any) -> list[Any]:
        """Collect the value of every rank. Rank 0 gets the list by rank; the other
        ranks get an empty list."""
        if self.group is None:
            return [value]
        values: list[Any] | None = [None] * self.world_size if self.leads else None
        dist.gather_object(value, values, dst=0, group=self.group)
        return values or []

    def share(self, value: Any) -> Any:
        """Return the value of rank 0 on every rank."""
        if self.group is None:
            return value
        box = [value]
        dist.broadcast_object_list(box, src=0, group=self.group)
        return box[0]

    def hand_out(self, values: list[Any]) -> Any:
        """Send one of `values` to each rank, by rank, and return the value for this
        rank. `values` is used on rank 0 only."""
        if self.group is None:
            return values[0]
        box: list[Any] = [None]
        dist.scatter_object_list(
            box, values if self.leads else None, src=0, group=self.group
        )
        return box[0]

    def largest(self, numbers: list[int]) -> "Largest":
        """Start an all-reduce of the maximum: for each of the numbers, the largest over
        all ranks. Calling `wait` on the returned object gives the result."""
        tensor = torch.tensor(numbers, dtype=torch.int64)
        if self.group is None:
            return Largest(tensor=tensor, work=None)
        work = dist.all_reduce(
            tensor, dist.ReduceOp.MAX, group=self.group, async_op=True
        )
        return Largest(tensor=tensor, work=work)


@dataclass(frozen=True, slots=True, kw_only=True)
class Largest:
    """The pending result of `ProcessGroup.largest`."""

    tensor: torch.Tensor
    work: Any

    def wait(self) -> list[int]:
        if self.work is not None:
            self.work.wait()
        return [int(number) for number in self.tensor.tolist()]
