"""A GPT of known size takes 40 steps on one GPU in bfloat16, and prints the median step time.

Its size: --layers, --width, --batch (of them --micro at a time) and --context. With --die SAVES its
first attempt ends itself with SIGKILL once a save is in the directory SAVES."""

import argparse
import json
import os
import signal
import statistics
import sys
import time
from pathlib import Path

import torch
from torch import nn
from torch.nn import functional

import corral.train as train
from corral.train.save.manifest import MANIFEST

VOCABULARY, HEAD_WIDTH = 50_304, 64
STEPS, WARM_STEPS = 40, 10
SAVE_PAUSE_SECONDS = 0.5


class Block(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm_1, self.norm_2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)
        self.up = nn.Linear(width, 4 * width)
        self.down = nn.Linear(4 * width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, length, width = x.shape
        parts = self.qkv(self.norm_1(x)).view(batch, length, 3, -1, HEAD_WIDTH)
        query, key, value = parts.permute(2, 0, 3, 1, 4)
        seen = functional.scaled_dot_product_attention(
            query, key, value, is_causal=True
        )
        x = x + self.out(seen.transpose(1, 2).reshape(batch, length, width))
        return x + self.down(functional.gelu(self.up(self.norm_2(x))))


class Model(nn.Module):
    def __init__(self, layers: int, width: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(VOCABULARY, width)
        self.blocks = nn.Sequential(*(Block(width) for _ in range(layers)))
        self.head = nn.Linear(width, VOCABULARY, bias=False)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        return self.head(self.blocks(self.embedding(tokens)))


def main() -> int:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--layers", type=int, default=12)
    arguments.add_argument("--width", type=int, default=1024)
    arguments.add_argument("--batch", type=int, default=8)
    arguments.add_argument("--micro", type=int, default=8)
    arguments.add_argument("--context", type=int, default=1024)
    arguments.add_argument("--die", type=Path)
    asked = arguments.parse_args()
    run = train.start()
    model = Model(asked.layers, asked.width).to(run.device)
    optimizer = torch.optim.AdamW(model.parameters(), fused=run.device.type == "cuda")
    tokens = torch.randint(VOCABULARY, (asked.batch, asked.context), device=run.device)
    run.resume(model=model, optimizer=optimizer)
    first = True
    seconds = []
    for step in run.steps(until=STEPS):
        if first:
            print("BEGINS at", step, torch.distributed.get_backend(), flush=True)
        first = False
        if asked.die and os.environ["CORRAL_ATTEMPT"] == "1":
            time.sleep(SAVE_PAUSE_SECONDS)
            if any(asked.die.rglob(MANIFEST)):
                time.sleep(SAVE_PAUSE_SECONDS)  # until the head has heard of it
                os.kill(os.getpid(), signal.SIGKILL)
        began = time.perf_counter()
        for part in tokens.split(asked.micro):
            with torch.autocast(run.device.type, torch.bfloat16):
                logits = model(part)
            loss = functional.cross_entropy(
                logits.flatten(0, 1).float(), part.flatten()
            )
            loss.backward()
            del logits
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        run.log(loss=loss)
        if run.device.type == "cuda":
            torch.cuda.synchronize()
        seconds.append(time.perf_counter() - began)
    result = {"step_seconds": statistics.median(seconds[WARM_STEPS:])}
    if run.device.type == "cuda":
        free, total = (
            torch.cuda.mem_get_info()
        )  # the context beside the allocator's peak
        result["used_bytes"] = total - free
    print("RESULT", json.dumps(result))
    return 0


if __name__ == "__main__":
    sys.exit(main())
