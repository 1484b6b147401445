"""Seven steps with Lightning's Fabric on all devices of all nodes."""

import os

import torch
import torch.distributed as dist
from lightning.fabric import Fabric
from world import report

fabric = Fabric(
    accelerator="cpu",
    devices=2,
    num_nodes=int(os.environ.get("NODES", "1")),
    strategy="ddp",
)
fabric.launch()
layer = torch.nn.Linear(4, 1)
model, optimizer = fabric.setup(layer, torch.optim.SGD(layer.parameters(), lr=0.1))
for _ in range(7):
    optimizer.zero_grad()
    fabric.backward(model(torch.ones(2, 4)).pow(2).mean())
    optimizer.step()
total = fabric.all_reduce(torch.ones(1), reduce_op="sum")
report(fabric.global_rank, fabric.world_size, total.item())
del model, optimizer
if dist.is_initialized():
    dist.destroy_process_group()
