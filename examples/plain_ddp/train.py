"""Plain DDP, started by torchrun, without a line of Corral's: it runs all the same.

What it does not get: progress, saves, resuming. After a failure it starts again.
"""

import argparse
import gc
import os

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--steps", type=int, default=50)
    asked = arguments.parse_args()

    cuda = torch.cuda.is_available()
    dist.init_process_group("nccl" if cuda else "gloo")
    train(asked.steps, cuda=cuda)
    print(f"rank {dist.get_rank()} of {dist.get_world_size()} is done", flush=True)
    gc.collect()  # a model that lives on keeps the group's threads, which abort a rank at its end
    dist.barrier()  # nobody hangs up while another still talks
    dist.destroy_process_group()


def train(steps: int, *, cuda: bool) -> None:
    device = (
        torch.device("cuda", int(os.environ["LOCAL_RANK"]))
        if cuda
        else torch.device("cpu")
    )
    torch.set_num_threads(1)
    torch.manual_seed(dist.get_rank())

    layers = nn.Sequential(nn.Linear(64, 128), nn.GELU(), nn.Linear(128, 1)).to(device)
    model = DistributedDataParallel(layers)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    for step in range(steps):
        inputs = torch.randn(32, 64, device=device)
        wanted = (
            inputs.sum(1) / inputs.shape[1] ** 0.5
        )  # of variance 1, as a fresh model's loss
        loss = (model(inputs).squeeze(1) - wanted).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if dist.get_rank() == 0 and (step % 10 == 0 or step == steps - 1):
            print(f"step {step} loss {loss.item():.4f}", flush=True)


if __name__ == "__main__":
    main()
