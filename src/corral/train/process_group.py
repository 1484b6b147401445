"""The gang of ranks: its process group, the device of this rank, and separate groups
for communication that does not disturb training."""

import atexit
import ipaddress
import os
import socket
import threading
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final

import torch
import torch.distributed as dist

from corral.train.rank_settings import Settings

QUIET_TIMEOUT: Final = timedelta(minutes=30)  # a save of any size ends sooner
LEAVE_SECONDS: Final = 10.0  # only a collective that a peer never joins takes longer


def choose_device(settings: Settings) -> torch.device:
    """Return the GPU of this rank if the rank has a real one, else the CPU."""
    if settings.pretend_gpus or not torch.cuda.is_available():
        return torch.device("cpu")
    index = settings.local_rank % torch.cuda.device_count()
    torch.cuda.set_device(index)
    return torch.device("cuda", index)


def join_gang(settings: Settings, device: torch.device) -> "GangLeaver":
    """Join the process group that the environment describes. A single rank forms a
    group of one, without a port. Return the object that leaves the group again.

    A process group that the script has already created is left unchanged.
    """
    if dist.is_initialized():
        return GangLeaver(None)
    backend = "cpu:gloo,cuda:nccl" if device.type == "cuda" else "gloo"
    if settings.world_size == 1:
        store = dist.HashStore()  # type: ignore[attr-defined] # torch's stubs forget it
        dist.init_process_group(backend, store=store, rank=0, world_size=1)
    else:
        if _is_loopback(settings.master_address):
            # a host name may lead elsewhere
            os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
        dist.init_process_group(backend, init_method="env://")
    return GangLeaver(dist.group.WORLD)


def _is_loopback(address: str) -> bool:
    with suppress(ValueError, OSError):
        return ipaddress.ip_address(socket.gethostbyname(address)).is_loopback
    return False


class GangLeaver:
    """Destruction of process groups at the end of the interpreter, after a regular end
    of training.

    A worker thread of a group may need the GIL to release the tensor of its last
    collective. If the interpreter is ending by then, Python ends the thread, and C++
    aborts the process. The destructor of a group joins its threads. After another end
    no group is destroyed, because its destructor blocks while a collective is pending.

    `default_group`: the default group if `join_gang` created it.
    """

    def __init__(self, default_group: dist.ProcessGroup | None) -> None:
        self._default_group = default_group
        self._groups: tuple[ProcessGroup, ...] = ()
        self._may_leave = False
        self._leaving = threading.Event()
        # Started now, because Python 3.12 starts no threads in an exit handler. While
        # the thread waits, it keeps the groups alive, even in the interpreter's end.
        self._thread = threading.Thread(
            target=self._destroy_groups, name="corral-leaver", daemon=True
        )
        self._thread.start()
        # Registered before the handlers of the run and of the training script, so that
        # it runs after them: they may still use the groups.
        atexit.register(self._leave)

    def hold(self, *groups: "ProcessGroup") -> None:
        """Add groups that are destroyed together with the default group."""
        self._groups += groups

    def leave_at_exit(self) -> None:
        """Arrange that the groups are destroyed at the end of the interpreter: those
        held, and the default group with all its subgroups if `join_gang` created it. No
        communication in the groups held may be pending."""
        self._may_leave = True

    def stay(self) -> None:
        """Cancel `leave_at_exit`, because communication starts again."""
        self._may_leave = False

    def _leave(self) -> None:
        if self._may_leave:
            self._leaving.set()
            self._thread.join(LEAVE_SECONDS)

    def _destroy_groups(self) -> None:
        self._leaving.wait()
        for group in self._groups:
            group.close()
        default_group, self._default_group = self._default_group, None
        if default_group is not None and dist.group.WORLD is default_group:
            with suppress(RuntimeError):  # a peer that left first
                dist.destroy_process_group()


@dataclass(slots=True, kw_only=True)
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

    def close(self) -> None:
        """Destroy the group, and wait until its threads have ended. It must not be used
        afterwards."""
        group = self.group
        del self.group  # a later use fails, and does not act as a group of one rank
        if group is not None:
            # a peer that left first, or a script that has destroyed all groups
            with suppress(RuntimeError, ValueError):
                dist.destroy_process_group(group)

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
