"""A next-token model on tokens in shards, with the same global batch on any number of
ranks."""

import argparse

import numpy as np
import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import corral.train as train
from corral.train.data.reader import Reader
from corral.train.data.token_shards import Tokens

WORDS = 64
LENGTH = 17


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", required=True, help="folder of .bin or .npy shards")
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument(
        "--write", action="store_true", help="write random shards, and end"
    )
    chosen = parser.parse_args()
    if chosen.write:
        tokens = np.random.RandomState(0).randint(0, WORDS, 200_000)
        for number, part in enumerate(np.array_split(tokens.astype(np.uint16), 4)):
            part.tofile(f"{chosen.data}/{number}.bin")
        return

    run = train.start()
    torch.manual_seed(1)
    layers = nn.Sequential(nn.Embedding(WORDS, 32), nn.Linear(32, WORDS)).to(run.device)
    model = DistributedDataParallel(layers) if run.world_size > 1 else layers
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    reader = Reader(Tokens(chosen.data, LENGTH), seed=1, global_batch=64, micro_batch=8)
    run.resume(model=model, optimizer=optimizer, data=reader)

    batches = run.data(reader, to_device=True)
    for _ in run.steps(until=chosen.steps):
        optimizer.zero_grad()
        samples = 0
        for micro in run.micro_batches(batches):
            scores = model(micro.batch[:, :-1])
            loss = nn.functional.cross_entropy(
                scores.flatten(0, 1), micro.batch[:, 1:].flatten()
            )
            (micro.weight * loss).backward()
            samples += micro.samples
        optimizer.step()
        run.log(loss=loss, samples=samples)


if __name__ == "__main__":
    main()
