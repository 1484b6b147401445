"""Seven steps with accelerate."""

import torch
from accelerate import Accelerator
from world import report

accelerator = Accelerator(cpu=True)
layer = torch.nn.Linear(4, 1)
model, optimizer = accelerator.prepare(
    layer, torch.optim.SGD(layer.parameters(), lr=0.1)
)
for _ in range(7):
    optimizer.zero_grad()
    accelerator.backward(model(torch.ones(2, 4)).pow(2).mean())
    optimizer.step()
total = accelerator.reduce(torch.ones(1), reduction="sum")
report(accelerator.process_index, accelerator.num_processes, total.item())
del model, optimizer, layer
accelerator.end_training()
