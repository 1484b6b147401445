"""Training on gloo ranks that hangs, or is irregular, in the way that HANG_KIND names.

It uses PyTorch alone, as a program that was not written for Corral.
"""

import ctypes
import os
import signal
import subprocess
import threading
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.utils.data import DataLoader, Dataset

KIND = os.environ["HANG_KIND"]
AT_STEP = int(os.environ.get("HANG_STEP", "8"))
CULPRIT = int(os.environ.get("HANG_RANK", "1"))
STEP_SECONDS = 0.1
CLONE_VM_VFORK = 0x100 | 0x4000
lock = threading.Lock()


class Samples(Dataset):
    def __init__(self, rank):
        self.rank = rank

    def __len__(self):
        return 400

    def __getitem__(self, index):
        if index == AT_STEP and KIND == "loader_deadlock" and self.rank == CULPRIT:
            lock.acquire()
            lock.acquire()
        if KIND == "slow_loader" and index >= AT_STEP:
            time.sleep(12.0 if index == AT_STEP else 0.5)
        return torch.ones(16)


def sleep():
    time.sleep(1e6)


def stop():
    os.kill(os.getpid(), signal.SIGSTOP)


def spin():
    count = 0
    while True:
        count += 1


def hold_gil():
    ctypes.PyDLL(None).sleep(10**6)


def deadlock():
    lock.acquire()
    lock.acquire()


def poll():
    while not os.path.exists("/nowhere/ready"):
        time.sleep(0.1)


def read_pipe():
    os.read(os.pipe()[0], 1)


def wait_for_child():
    subprocess.run(["sleep", "1000000"], check=False)


def wait_uninterruptibly():
    libc = ctypes.CDLL(None)
    stack = ctypes.create_string_buffer(65536)
    top = ctypes.c_void_p(ctypes.addressof(stack) + 65536 - 64)
    libc.clone(libc.pause, top, CLONE_VM_VFORK | signal.SIGCHLD, None)


def wait_for_socket():
    import socket

    server = socket.create_server(("127.0.0.1", 0))
    server.accept()


def one_collective_too_many():
    dist.barrier()


def one_other_collective():
    dist.broadcast(torch.ones(4), src=CULPRIT)
    time.sleep(1e6)


HANGS = {
    "sleep": sleep,
    "stopped": stop,
    "spin": spin,
    "held_gil": hold_gil,
    "deadlock": deadlock,
    "poll": poll,
    "read_pipe": read_pipe,
    "child": wait_for_child,
    "uninterruptible": wait_uninterruptibly,
    "socket": wait_for_socket,
}


def evaluate(seconds):
    time.sleep(seconds)


def measure_quality(model, seconds):
    """An evaluation whose name does not show it."""
    until = time.monotonic() + seconds
    with torch.no_grad():
        while time.monotonic() < until:
            model(torch.ones(256, 16))


def collect_summary(seconds):
    time.sleep(seconds)


def save_checkpoint(model, seconds):
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        torch.save(model.state_dict(), f"model-{dist.get_rank()}.pt")
        time.sleep(0.3)


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(0)
    layers = nn.Sequential(nn.Linear(16, 64), nn.ReLU(), nn.Linear(64, 1))
    model = nn.parallel.DistributedDataParallel(layers)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    workers = 1 if KIND in ("loader_deadlock", "slow_loader") else 0
    loader = DataLoader(Samples(rank), batch_size=1, num_workers=workers)
    for step, batch in enumerate(loader):
        if step == int(os.environ.get("LAST_STEP", "1000000")):
            break
        if KIND == "long_first_step" and step == 0:
            time.sleep(20.0)
        if KIND == "growing_steps":
            time.sleep(min(8.0, 0.05 * 1.35**step))
        if KIND == "irregular_steps":
            time.sleep(3.0 * ((step * 7919) % 13) / 13)
        if step == AT_STEP:
            if rank == CULPRIT and KIND in HANGS:
                HANGS[KIND]()
            if KIND == "collective_too_many" and rank == CULPRIT:
                one_collective_too_many()
            if KIND == "collective_too_few" and rank != CULPRIT:
                dist.barrier()
            if KIND == "collective_and_sleep" and rank == CULPRIT:
                one_other_collective()
            if KIND == "evaluation":
                evaluate(25.0)
            if KIND == "evaluation_of_one" and rank == 0:
                evaluate(25.0)
            if KIND == "unnamed_evaluation" and rank == 0:
                measure_quality(layers, 25.0)
            if KIND == "unnamed_pause":
                collect_summary(20.0)
            if KIND == "unnamed_pause_of_one" and rank == 0:
                collect_summary(20.0)
            if KIND == "save" and rank == 0:
                save_checkpoint(layers, 25.0)
        loss = model(batch).sum()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        time.sleep(STEP_SECONDS)
        if KIND == "ends_late" and step == AT_STEP:
            break
    if KIND == "ends_late":
        if rank == 0:
            measure_quality(layers, 20.0)
        dist.barrier()
    print("done", flush=True)


main()
