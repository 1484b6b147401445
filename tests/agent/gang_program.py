"""A gang of processes without PyTorch, whose ranks wait for each other in each step as
those of DistributedDataParallel do. HANG_KIND says how it hangs or is irregular.

Its modules `torch.*` are as small as the file that counts steps allows.
"""

from pathlib import Path
from typing import Final

_OPTIMIZER: Final = """
hooks = []
def register_optimizer_step_post_hook(hook):
    hooks.append(hook)
class Optimizer:
    def step(self):
        for hook in hooks:
            hook(self, (), {})
"""
_DISTRIBUTED: Final = """
import os, time
rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
begun = 0
def all_reduce():
    global begun
    begun += 1
    with open(f"{os.environ['GANG']}/{rank}.new", "w") as file:
        file.write(str(begun))
    os.rename(f"{os.environ['GANG']}/{rank}.new", f"{os.environ['GANG']}/{rank}")
    while min(map(begun_by, range(size))) < begun:
        time.sleep(0.02)
def begun_by(rank):
    try:
        with open(f"{os.environ['GANG']}/{rank}") as file:
            return int(file.read())
    except FileNotFoundError:
        return 0
"""
_C10D: Final = """
import json
def _dump_fr_trace_json():
    from torch.distributed import distributed_c10d
    return json.dumps({"entries": [{
        "process_group": ["0", "default_pg"], "is_p2p": False, "state": "scheduled",
        "collective_seq_id": number, "profiling_name": "gloo:all_reduce",
    } for number in range(1, distributed_c10d.begun + 1)]})
"""
_TRAIN: Final = """
import ctypes, multiprocessing, os, signal, threading, time
import torch
from torch.distributed.distributed_c10d import all_reduce, rank
from torch.optim.optimizer import Optimizer
from torch.utils.data.dataloader import next_data
KIND, CULPRIT, PAUSE = os.environ["HANG_KIND"], rank == 1, float(os.environ["PAUSE"])
lock = threading.Lock()
def sleep():
    time.sleep(1e6)
def stopped():
    os.kill(os.getpid(), signal.SIGSTOP)
def spin():
    while True:
        pass
def held_gil():
    ctypes.PyDLL(None).sleep(10**6)
def deadlock():
    lock.acquire()
    lock.acquire()
def ends():
    raise SystemExit
def loader():
    next_data(deadlock)
def evaluate():
    time.sleep(PAUSE)
def measure():
    until = time.monotonic() + PAUSE
    while time.monotonic() < until:
        for layer in layers:
            layer()
def make_layer(number):
    space = {}
    exec(f"def layer_{number}(): return sum(range(20000))", space)
    return space[f"layer_{number}"]
layers = [make_layer(number) for number in range(9)]
def pause():
    time.sleep(PAUSE)
def write():
    until = time.monotonic() + PAUSE
    while time.monotonic() < until:
        with open("state", "wb") as file:
            file.write(bytes(10**6))
def slow_loader():
    next_data(pause)
optimizer = Optimizer()
kinds = {"evaluate": True, "measure": CULPRIT, "pause": CULPRIT, "write": CULPRIT,
         "slow_loader": CULPRIT}
for step in range(1000):
    time.sleep(0.05)
    if KIND == "first_step" and step == 0:
        time.sleep(PAUSE)
    if KIND == "growing":
        time.sleep(min(2.0, 0.05 * 1.5 ** step))
    if step == 8:
        if KIND in globals() and kinds.get(KIND, CULPRIT):
            globals()[KIND]()
    all_reduce()
    optimizer.step()
"""
_DATALOADER: Final = """
import multiprocessing
class _BaseDataLoaderIter:
    def __next__(self):
        pass
def next_data(function):
    worker = multiprocessing.get_context("fork").Process(target=function)
    worker.start()
    worker.join()
"""


def write_gang_program(folder: Path) -> Path:
    """Write the program and its modules, and return its path."""
    modules = {
        "torch/__init__.py": "import torch._C",
        "torch/_C/__init__.py": "from torch._C import _distributed_c10d",
        "torch/_C/_distributed_c10d.py": _C10D,
        "torch/distributed/__init__.py": "",
        "torch/distributed/distributed_c10d.py": _DISTRIBUTED,
        "torch/optim/__init__.py": "",
        "torch/optim/optimizer.py": _OPTIMIZER,
        "torch/utils/__init__.py": "",
        "torch/utils/data/__init__.py": "",
        "torch/utils/data/dataloader.py": _DATALOADER,
        "train.py": _TRAIN,
    }
    for name, text in modules.items():
        file = folder / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    return folder / "train.py"
