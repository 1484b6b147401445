"""A gang of Ray Train on all nodes of a Ray program."""

import os

import ray
import torch
import torch.distributed as dist
from ray.train import ScalingConfig
from ray.train.torch import TorchTrainer


def train() -> None:
    total = torch.ones(1)
    dist.all_reduce(total)
    print(
        f"WORLD rank={dist.get_rank()} size={dist.get_world_size()} "
        f"sum={total.item():g} node={os.uname().nodename} gpus="
        f"{os.environ.get('CUDA_VISIBLE_DEVICES', '')}",
        flush=True,
    )


ray.init()
TorchTrainer(train, scaling_config=ScalingConfig(num_workers=4)).fit()
