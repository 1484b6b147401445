"""A GPT of known size takes 40 steps on one GPU in bfloat16, and prints the median step time.

With --die its first attempt ends itself midway with SIGKILL."""

import json
import os
import signal
import statistics
import sys
import time

import torch
from torch import nn
from torch.nn import functional

import corral.train as train

LAYERS, WIDTH, HEADS, HIDDEN, VOCABULARY = 12, 1024, 16, 4096, 50_304
CONTEXT, BATCH, STEPS, WARM_STEPS = 1024, 8, 40, 10


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm_1, self.norm_2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.qkv = nn.Linear(WIDTH, 3 * WIDTH)
        self.out = nn.Linear(WIDTH, WIDTH)
        self.up = nn.Linear(WIDTH, HIDDEN)
        self.down = nn.Linear(HIDDEN, WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, length, _ = x.shape
        parts = self.qkv(self.norm_1(x)).view(batch, length, 3, HEADS, WIDTH // HEADS)
        query, key, value = parts.permute(2, 0, 3, 1, 4)
        seen = functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        x = x + self.out(seen.transpose(1, 2).reshape(batch, length, WIDTH))
        return x + self.down(functional.gelu(self.up(self.norm_2(x))))


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(VOCABULARY, WIDTH)
        self.blocks = nn.Sequential(*(Block() for _ in range(LAYERS)))
        self.head = nn.Linear(WIDTH, VOCABULARY, bias=False)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        return self.head(self.blocks(self.embedding(tokens)))


def main() -> int:
    run = train.start()
    model = Model().to(run.device)
    optimizer = torch.optim.AdamW(model.parameters(), fused=run.device.type == "cuda")
    tokens = torch.randint(VOCABULARY, (BATCH, CONTEXT), device=run.device)
    run.resume(model=model, optimizer=optimizer)
    first = True
    seconds = []
    for step in run.steps(until=STEPS):
        if first:
            print("BEGINS at", step, torch.distributed.get_backend(), flush=True)
        first = False
        if "--die" in sys.argv and os.environ["CORRAL_ATTEMPT"] == "1":
            time.sleep(0.2)  # so that a save comes before the end
            if step >= STEPS // 2:
                os.kill(os.getpid(), signal.SIGKILL)
        began = time.perf_counter()
        with torch.autocast(run.device.type, torch.bfloat16):
            logits = model(tokens)
        loss = functional.cross_entropy(logits.flatten(0, 1).float(), tokens.flatten())
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        run.log(loss=loss)
        if run.device.type == "cuda":
            torch.cuda.synchronize()
        seconds.append(time.perf_counter() - began)
    print("RESULT", json.dumps({"step_seconds": statistics.median(seconds[WARM_STEPS:])}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
