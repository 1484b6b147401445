"""The gang of ranks: its process group, this rank's device, and quiet talk alongside
training."""

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
    """This rank's GPU where there is a real one, else the CPU."""
    if settings.pretend_gpus or not torch.cuda.is_available():
        return torch.device("cpu")
    index = settings.local_rank % torch.cuda.device_count()
    torch.cuda.set_device(index)
    return torch.device("cuda", index)


def join_gang(settings: Settings, device: torch.device) -> None:
    """Join the process group that the environment describes; alone, one of one, without
    a port.

    A process group that the script has made itself is left as it is.
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
    """Take the process group down at a regular end."""
    if dist.is_initialized():
        with suppress(RuntimeError):  # a peer that left first
            dist.destroy_process_group()


def _is_loopback(address: str) -> bool:
    with suppress(ValueError, OSError):
        return ipaddress.ip_address(socket.gethostbyname(address)).is_loopback
    return False


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessGroup:
    """A gloo group of its own for one thread's talk; none is needed for a world of
    one."""

    rank: int
    world_size: int
    group: dist.ProcessGroup | None = None

    @property
    def leads(self) -> bool:
        return self.rank == 0

    @staticmethod
    def gather_around(timeout: timedelta = QUIET_TIMEOUT) -> "ProcessGroup":
        """A new group of all ranks. Every rank must call this, in the same order."""
        rank, world_size = dist.get_rank(), dist.get_world_size()
        group = (
            dist.new_group(backend="gloo", timeout=timeout) if world_size > 1 else None
        )
        return ProcessGroup(rank=rank, world_size=world_size, group=group)

    def gather(self, value: Any) -> list[Any]:
        """Everybody's value, by rank, on rank 0; elsewhere nothing."""
        if self.group is None:
            return [value]
        values: list[Any] | None = [None] * self.world_size if self.leads else None
        dist.gather_object(value, values, dst=0, group=self.group)
        return values or []

    def share(self, value: Any) -> Any:
        """Rank 0's value, everywhere."""
        if self.group is None:
            return value
        box = [value]
        dist.broadcast_object_list(box, src=0, group=self.group)
        return box[0]

    def hand_out(self, values: list[Any]) -> Any:
        """The value that rank 0 has for this rank."""
        if self.group is None:
            return values[0]
        box: list[Any] = [None]
        dist.scatter_object_list(
            box, values if self.leads else None, src=0, group=self.group
        )
        return box[0]

    def largest(self, numbers: list[int]) -> "Largest":
        """Begin to find the largest of each number over all ranks; `wait` for the
        answer."""
        tensor = torch.tensor(numbers, dtype=torch.int64)
        if self.group is None:
            return Largest(tensor=tensor, work=None)
        work = dist.all_reduce(
            tensor, dist.ReduceOp.MAX, group=self.group, async_op=True
        )
        return Largest(tensor=tensor, work=work)


@dataclass(frozen=True, slots=True, kw_only=True)
class Largest:
    """The answer of `ProcessGroup.largest`, on its way."""

    tensor: torch.Tensor
    work: Any

    def wait(self) -> list[int]:
        if self.work is not None:
            self.work.wait()
        return [int(number) for number in self.tensor.tolist()]
