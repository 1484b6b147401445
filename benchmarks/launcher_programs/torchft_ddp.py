"""Seven steps of two replica groups of torchft."""

import os
from datetime import timedelta

import torch
from torchft import DistributedDataParallel, Manager, Optimizer, ProcessGroupGloo
from world import report

model = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
manager = Manager(
    pg=ProcessGroupGloo(timeout=timedelta(seconds=30)),
    min_replica_size=2,
    load_state_dict=model.load_state_dict,
    state_dict=model.state_dict,
    replica_id=f"group_{os.environ['REPLICA_GROUP_ID']}",
    timeout=timedelta(seconds=60),
)
ddp = DistributedDataParallel(manager, model)
stepper = Optimizer(manager, optimizer)
for _ in range(7):
    stepper.zero_grad()
    ddp(torch.ones(2, 4)).pow(2).mean().backward()
    stepper.step()
report(
    int(os.environ["REPLICA_GROUP_ID"]),
    manager.num_participants(),
    manager.num_participants(),
)
manager.shutdown()
