"""A fit of Lightning's Trainer on all devices of all nodes."""

import os

import lightning
import torch
from world import report


class Model(lightning.LightningModule):
    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(4, 1)

    def training_step(self, batch: torch.Tensor) -> torch.Tensor:
        return self.layer(batch).pow(2).mean()

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters(), lr=0.1)

    def on_train_end(self) -> None:
        total = self.trainer.strategy.reduce(torch.ones(1), reduce_op="sum")
        report(self.global_rank, self.trainer.world_size, total.item())


loader = torch.utils.data.DataLoader(torch.ones(56, 4), batch_size=2)
lightning.Trainer(
    accelerator="cpu",
    devices=2,
    num_nodes=int(os.environ.get("NODES", "1")),
    strategy="ddp",
    max_steps=7,
    logger=False,
    enable_checkpointing=False,
    enable_progress_bar=False,
).fit(Model(), loader)
