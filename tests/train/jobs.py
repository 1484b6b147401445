"""What the ranks of the tests run: small, but real training through corral.train."""

import hashlib
import json
import os
import signal
import time
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel

import corral.train as train
from corral.train.save import staging
from corral.train.save.checkpoint_dir import Shelf
from tests.train.saves import (
    capture,
    holder_at,
    prepare,
    save_in_memory,
    saver_at,
)


def digest(state: dict[str, Any]) -> str:
    found = hashlib.sha256()
    for name, value in sorted(state.items()):
        whole = value.full_tensor() if hasattr(value, "full_tensor") else value
        found.update(name.encode() + whole.detach().contiguous().numpy().tobytes())
    return found.hexdigest()


def make_model(kind: str, rank: int) -> nn.Module:
    torch.manual_seed(1)
    model = nn.Sequential(
        nn.Linear(16, 40),
        nn.BatchNorm1d(40),
        nn.GELU(),
        nn.Dropout(0.1),
        nn.Linear(40, 4),
    )
    # dropout differs by rank, so each rank's generator matters
    torch.manual_seed(100 + rank)
    if kind == "ddp":
        ddp = DistributedDataParallel(model)
        # buckets are settled before anything is resumed
        ddp(torch.randn(4, 16)).sum().backward()
        ddp.zero_grad()
        return ddp
    if kind == "fsdp":
        fully_shard(model)
    return model


def train_small() -> None:
    """Settings in SMALL (JSON): out, steps, model, pause_seconds, batch_size, length,
    notes; slow_rank, which pauses for slow_seconds more."""
    asked: dict[str, Any] = {
        "model": "ddp",
        "pause_seconds": 0.0,
        "batch_size": 2,
        "length": 96,
        "notes": True,
        "slow_rank": -1,
        "slow_seconds": 0.0,
    }
    asked |= json.loads(os.environ["SMALL"])
    out = Path(asked["out"])
    torch.use_deterministic_algorithms(True)
    run = train.start()
    model = make_model(asked["model"], run.rank)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 5, 0.9)
    data = torch.randn(asked["length"], 16, generator=torch.Generator().manual_seed(3))
    sampler = train.Sampler(len(data), asked["batch_size"], seed=5)
    batches = run.data(sampler)
    state = run.resume(
        model=model, optimizer=optimizer, scheduler=scheduler, data=sampler
    )
    if run.rank == 0:
        note(out / "resumed", state.step, os.environ.get("CORRAL_ATTEMPT"))
    for step in run.steps(until=asked["steps"]):
        batch = next(batches)
        if asked["notes"]:
            note(out / f"samples-{run.rank}", step, *batch)
        loss = model(data[batch] + torch.rand(1)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        scheduler.step()
        run.log(loss=loss, samples=len(batch))
        slower = asked["slow_seconds"] if run.rank == asked["slow_rank"] else 0.0
        time.sleep(asked["pause_seconds"] + slower)
    found = digest(dict(model.state_dict()))
    if run.rank == 0:
        rate = optimizer.param_groups[0]["lr"]
        result = {"digest": found, "rate": rate, "epoch": sampler.epoch}
        (out / "result.json").write_text(json.dumps(result))


def save_in_memory_once() -> None:
    """SAVES, MEMORY, ATTEMPT, STEP: save steps 10 and 20 in memory, stop until
    continued, save this step in memory."""
    staging.FILE_BYTES = 400  # type: ignore[misc]
    attempt = int(os.environ["ATTEMPT"])
    shelf = Shelf(root=Path(os.environ["SAVES"]), job="j1", attempt=attempt)
    shelf.open()
    failures: list[str] = []
    saver, _ = saver_at(
        shelf,
        failed=lambda step, why: failures.append(why),
        memory=Path(os.environ["MEMORY"]),
    )
    prepare(saver)
    for step in (10, 20):
        save_in_memory(saver, step)
    os.kill(os.getpid(), signal.SIGSTOP)
    save_in_memory(saver, int(os.environ["STEP"]))
    saver.close()
    print(failures, flush=True)
    os._exit(1 if failures else 0)


def note(path: Path, *words: Any) -> None:
    with path.open("a") as file:
        file.write(" ".join(map(str, words)) + "\n")


def save_once() -> None:
    """SAVES, ATTEMPT, STEP: ready everything, stop until continued, save, let older
    ones go."""
    step = int(os.environ["STEP"])
    staging.FILE_BYTES = 400  # type: ignore[misc] # several data files in so small a save
    shelf = Shelf(
        root=Path(os.environ["SAVES"]), job="j1", attempt=int(os.environ["ATTEMPT"])
    )
    holder = holder_at(step)
    os.kill(os.getpid(), signal.SIGSTOP)
    shelf.open()
    older = [(slot.attempt, slot.step) for slot in shelf.saves()]
    saver, saved = saver_at(shelf, keep=1, failed=print)
    saver.save(step, lambda: capture(holder, step))
    saver.wait()
    saver.forget([*older, *((one.attempt, one.step) for one in saved)])
    saver.close()
    os._exit(0 if saved else 1)
