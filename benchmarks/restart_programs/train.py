"""Training on gloo ranks that goes on from its newest save, and writes when its process
began and when it made its first step.

It uses PyTorch alone, as a program that was not written for Corral.
"""

import json
import os
import time
from pathlib import Path

BEGAN = time.time()

import torch  # noqa: E402
import torch.distributed as dist  # noqa: E402
from torch import nn  # noqa: E402
from torch.nn.parallel import DistributedDataParallel  # noqa: E402

FOLDER = Path(os.environ["RESTART_FOLDER"])
STEP_SECONDS = 0.05
SAVE_STEPS = 10


def write(name: str, value: object) -> None:
    """Write a small file in one step, so that its reader never sees half of it."""
    part = FOLDER / f"{name}.{os.getpid()}"
    part.write_text(json.dumps(value))
    part.rename(FOLDER / name)


def main() -> None:
    rank = int(os.environ["RANK"])
    torch.set_num_threads(1)
    run = {"pid": os.getpid(), "began": BEGAN, "stepped": None}
    write(f"rank-{rank}", run)
    dist.init_process_group("gloo")
    model = DistributedDataParallel(nn.Linear(64, 64))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    saved = FOLDER / "save.pt"
    step = torch.load(saved)["step"] if saved.exists() else 0
    while True:
        optimizer.zero_grad()
        model(torch.ones(8, 64)).sum().backward()
        optimizer.step()
        step += 1
        if run["stepped"] is None:
            run["stepped"] = time.time()
            write(f"rank-{rank}", run)
        if rank == 0 and step % SAVE_STEPS == 0:
            part = FOLDER / "save.part"
            torch.save({"step": step}, part)
            part.rename(saved)
        time.sleep(STEP_SECONDS)


if __name__ == "__main__":
    main()
