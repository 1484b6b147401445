"""Seven steps of DeepSpeed's engine on CPUs."""

import deepspeed
import torch
import torch.distributed as dist
from world import report

layer = torch.nn.Linear(4, 1)
engine, *_ = deepspeed.initialize(
    model=layer,
    model_parameters=layer.parameters(),
    config={
        "train_micro_batch_size_per_gpu": 2,
        "optimizer": {"type": "SGD", "params": {"lr": 0.1}},
        "zero_optimization": {"stage": 0},
    },
    dist_init_required=True,
)
for _ in range(7):
    loss = engine(torch.ones(2, 4)).pow(2).mean()
    engine.backward(loss)
    engine.step()
total = torch.ones(1)
dist.all_reduce(total)
report(dist.get_rank(), dist.get_world_size(), total.item())
del engine
dist.destroy_process_group()
