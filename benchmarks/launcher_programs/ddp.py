"""Seven steps of plain DDP."""

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from world import report

dist.init_process_group("gloo")
model = DistributedDataParallel(torch.nn.Linear(4, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(7):
    optimizer.zero_grad()
    model(torch.ones(2, 4)).pow(2).mean().backward()
    optimizer.step()
total = torch.ones(1)
dist.all_reduce(total)
report(dist.get_rank(), dist.get_world_size(), total.item())
del model, optimizer  # they hold the process group, which torch ends badly at the exit
dist.destroy_process_group()
