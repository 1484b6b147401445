"""What a save costs training, and how fast a verified restore is, against plain PyTorch and disk.

Run: .venv/bin/python benchmarks/checkpoint_stall.py [--write FILE.md] [--directory DIR]
     [--device cuda]

One rank holds a state of about 200 MB (parameters and both moments of AdamW) and trains in steps of
equal work. In turns, in the same run: a plain `torch.save` of that state between two steps, and a
save by corral.train. Stall is what the loop loses at the step boundary; added wall time is the
whole rest of what the save cost, the stall included: the time from the save's beginning until it is
durable, less the usual time of as many steps. Restore is verify and load, from a page cache emptied
of these files, against a plain cold read of the same files.
"""

import argparse
import os
import platform
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.distributed.checkpoint.state_dict_loader import load as dcp_load
from torch.distributed.checkpoint.state_dict_saver import save as dcp_save

from corral.domain.keep_rule import KeepRule
from corral.train.process_group import ProcessGroup
from corral.train.save.checkpoint_dir import Shelf
from corral.train.save.memory_restore import choose_in_memory
from corral.train.save.memory_tier import MemoryTier
from corral.train.save.restore import RestoreCandidate, load
from corral.train.save.saver import Saved, Saver
from corral.train.save.training_state import StateHolder
from corral.train.save.verify import verify

WIDTH = 1024
LAYERS = 16  # 16.8 million parameters, 201 MB with AdamW's two moments
ROUNDS = 9
KEEP = 2  # both ways keep as many saves, each in files of its own
ALONE = ProcessGroup(rank=0, world_size=1)


@dataclass(slots=True)
class Costs:
    """Seconds, one entry a round."""

    stall: list[float] = field(default_factory=list)
    added: list[float] = field(default_factory=list)
    until_durable: list[float] = field(default_factory=list)


def make_holder(device: torch.device, *, stepped: bool = True) -> StateHolder:
    torch.manual_seed(0)
    model = nn.Sequential(*(nn.Linear(WIDTH, WIDTH, bias=False) for _ in range(LAYERS)))
    model = model.to(device)
    optimizer = torch.optim.AdamW(model.parameters(), foreach=True)
    holder = StateHolder(model=model, optimizers=(optimizer,))
    if stepped:
        train_step(holder)
    return holder


def train_step(holder: StateHolder) -> None:
    device = next(holder.model.parameters()).device
    holder.model(torch.randn(32, WIDTH, device=device)).square().mean().backward()
    for optimizer in holder.optimizers:
        optimizer.step()
        optimizer.zero_grad()
    if device.type == "cuda":
        torch.cuda.synchronize()


def plain_save(holder: StateHolder, path: Path) -> None:
    """What a script without corral.train does: as a rule not even durable."""
    state = {
        "model": holder.model.state_dict(),
        "optimizer": holder.optimizers[0].state_dict(),
    }
    torch.save(state, path)


def usual_step_seconds(holder: StateHolder, steps: int = 20) -> float:
    return statistics.median(timed(lambda: train_step(holder)) for _ in range(steps))


def timed(action: Callable[[], Any]) -> float:
    began = time.perf_counter()
    action()
    return time.perf_counter() - began


def measure_plain(
    holder: StateHolder, directory: Path, step: int, costs: Costs
) -> None:
    (directory / f"plain-{step - KEEP}.pt").unlink(missing_ok=True)
    path = directory / f"plain-{step}.pt"
    seconds = timed(lambda: plain_save(holder, path))
    costs.stall.append(seconds)
    usual = usual_step_seconds(holder, 8)
    after = [timed(lambda: train_step(holder)) for _ in range(8)]
    costs.added.append(seconds + max(0.0, sum(after) - 8 * usual))
    costs.until_durable.append(seconds)


def measure_corral(
    holder: StateHolder, saver: Saver, done: list[Saved], step: int, costs: Costs
) -> None:
    usual = usual_step_seconds(holder)
    began = time.perf_counter()
    saver.save(step, lambda: holder.capture(step=step, observed_seconds=0.0))
    steps = 0
    while saver.busy:
        train_step(holder)
        steps += 1
    total = time.perf_counter() - began
    stall = done[
        -1
    ].stall_seconds  # at the boundary, and what the optimizer waited for its state
    costs.stall.append(stall)
    costs.added.append(max(stall, total - steps * usual))
    costs.until_durable.append(total)


def forget_pages(path: Path) -> None:
    for file in path.iterdir():
        descriptor = os.open(file, os.O_RDONLY)
        os.fsync(descriptor)
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(descriptor)


def read_plainly(path: Path) -> None:
    buffer = bytearray(4 * 1024 * 1024)
    for file in sorted(path.iterdir()):
        with file.open("rb", buffering=0) as opened:
            while opened.readinto(buffer):
                pass


def check(saved: Saved) -> None:
    verify(
        saved.directory,
        attempt=1,
        step=saved.step,
        manifest_sha256=saved.manifest_sha256,
    )


def restore(saved: Saved, holder: StateHolder) -> None:
    check(saved)
    found = RestoreCandidate(
        attempt=1,
        step=saved.step,
        path=saved.path,
        manifest_sha256=saved.manifest_sha256,
    )
    load(found, holder)


def measure_restore(saved: Saved, holder: StateHolder) -> dict[str, list[float]]:
    """In turns: a plain cold read, a restore into objects that are there, into new ones."""
    found: dict[str, list[float]] = {
        "cold read": [],
        "verify": [],
        "restore": [],
        "new": [],
    }
    for _ in range(ROUNDS):
        forget_pages(saved.directory)
        found["cold read"].append(timed(lambda: read_plainly(saved.directory)))
        forget_pages(saved.directory)
        found["verify"].append(timed(lambda: check(saved)))
        forget_pages(saved.directory)
        found["restore"].append(timed(lambda: restore(saved, holder)))
        forget_pages(saved.directory)
        new = make_holder(next(holder.model.parameters()).device, stepped=False)
        found["new"].append(timed(partial(restore, saved, new)))
    return found


def open_memory_saver(holder: StateHolder, directory: Path, memory: Path) -> Saver:
    shelf = Shelf(root=directory / "memory", job="bench", attempt=1)
    shelf.open()
    saver = Saver(
        shelf,
        keep=KeepRule(last=KEEP),
        talk=ALONE,
        quiet=ALONE,
        done=lambda saved: None,
        failed=failed,
        memory=MemoryTier.join(memory, 1, ALONE),
    )
    saver.guard(holder.optimizers[0])
    saver.prepare(holder.capture(step=0, observed_seconds=0.0))
    saver.wait()
    return saver


def measure_memory(holder: StateHolder, directory: Path) -> list[str]:
    """Save in memory, and restore from it; in turns with DCP on a disk, from the page cache."""
    memory = Path(tempfile.mkdtemp(prefix="corral-bench-", dir="/dev/shm"))
    saver = open_memory_saver(holder, directory, memory)
    stalls: list[float] = []
    added: list[float] = []
    dcp_saves: list[float] = []
    restores: list[float] = []
    dcp_loads: list[float] = []
    dcp_state = {
        "model": holder.model.state_dict(),
        "optimizer": holder.optimizers[0].state_dict(),
    }
    try:
        for step in range(1, ROUNDS + 1):
            usual = usual_step_seconds(holder)
            began = time.perf_counter()
            capture = partial(holder.capture, step=step, observed_seconds=0.0)
            stalls.append(saver.save(step, capture, durable=False))
            steps = 0
            while saver.busy:
                train_step(holder)
                steps += 1
            seconds = time.perf_counter() - began - steps * usual
            added.append(max(stalls[-1], seconds))
            target = directory / "dcp"
            shutil.rmtree(target, ignore_errors=True)
            dcp_saves.append(
                timed(partial(dcp_save, dcp_state, checkpoint_id=target, no_dist=True))
            )
            dcp_loads.append(
                timed(partial(dcp_load, dcp_state, checkpoint_id=target, no_dist=True))
            )
            restores.append(timed(partial(restore_from_memory, memory, holder)))
    finally:
        saver.close()
        shutil.rmtree(memory)
    load_ratio = statistics.median(restores) / statistics.median(dcp_loads)
    save_ratio = statistics.median(added) / statistics.median(dcp_saves)
    return [
        "",
        "| in the memory of the node | milliseconds |",
        "| --- | --- |",
        f"| stall at the boundary | {spread(stalls)} |",
        f"| added wall time | {spread(added)} |",
        f"| DCP save | {spread(dcp_saves)} |",
        f"| verify and load | {spread(restores)} |",
        f"| DCP load, page cache warm | {spread(dcp_loads)} |",
        "",
        f"restore from memory against DCP load: {load_ratio:.2f} (to reach: 0.3)",
        f"added wall time in memory against DCP save: {save_ratio:.2f}",
    ]


def restore_from_memory(memory: Path, holder: StateHolder) -> None:
    found = choose_in_memory(MemoryTier.join(memory, 1, ALONE), [], holder, ALONE)
    assert found is not None
    load(found, holder)


def spread(values: list[float]) -> str:
    low, high = 1000 * min(values), 1000 * max(values)
    return f"{1000 * statistics.median(values):.1f} ({low:.1f} to {high:.1f})"


def measure(directory: Path, device: torch.device) -> list[str]:
    holder = make_holder(device)
    shelf = Shelf(root=directory / "saves", job="bench", attempt=1)
    shelf.root.mkdir()
    shelf.open()
    done: list[Saved] = []
    saver = Saver(
        shelf,
        keep=KeepRule(last=KEEP),
        talk=ALONE,
        quiet=ALONE,
        done=done.append,
        failed=failed,
    )
    saver.guard(holder.optimizers[0])
    saver.prepare(holder.capture(step=0, observed_seconds=0.0))
    saver.wait()
    plain, corral = Costs(), Costs()
    for round_number in range(ROUNDS):
        measure_plain(holder, directory, round_number + 1, plain)
        measure_corral(holder, saver, done, round_number + 1, corral)
        saver.forget([(1, one.step) for one in done])
    saver.close()
    restored = measure_restore(done[-1], holder)
    in_memory = measure_memory(holder, directory)
    size = done[-1].size_bytes
    ratio = statistics.median(corral.stall) / statistics.median(plain.stall)
    added = statistics.median(corral.added) / statistics.median(plain.stall)
    cold = statistics.median(restored["cold read"])
    speed = {
        name: cold / statistics.median(values) for name, values in restored.items()
    }
    return [
        f"state: {size / 1e6:.0f} MB, {ROUNDS} rounds, step {1000 * usual_step_seconds(holder):.0f}"
        f" ms on {device.type}, {torch.get_num_threads()} threads; median (least to most) in"
        " milliseconds",
        "",
        "| what | plain torch.save | corral.train |",
        "| --- | --- | --- |",
        f"| stall of the training loop | {spread(plain.stall)} | {spread(corral.stall)} |",
        f"| added wall time, stall included | {spread(plain.added)} | {spread(corral.added)} |",
        f"| until done (corral: durable) | {spread(plain.until_durable)} "
        f"| {spread(corral.until_durable)} |",
        "",
        f"stall against a plain torch.save: {ratio:.3f} (to reach: 0.1)",
        f"added wall time against a plain torch.save: {added:.2f}",
        "",
        "| from a cold page cache | milliseconds | of the cold read's speed (to reach: 0.8) |",
        "| --- | --- | --- |",
        f"| plain read, one thread | {spread(restored['cold read'])} | 1 |",
        f"| verify | {spread(restored['verify'])} | {speed['verify']:.2f} |",
        f"| verify and load | {spread(restored['restore'])} | {speed['restore']:.2f} |",
        f"| the same, optimizer state in new memory | {spread(restored['new'])} "
        f"| {speed['new']:.2f} |",
        *in_memory,
    ]


def failed(step: int, why: str) -> None:
    raise RuntimeError(f"the save of step {step} failed: {why}")


def machine() -> str:
    model = next(
        (
            line.split(":")[1].strip()
            for line in Path("/proc/cpuinfo").read_text().splitlines()
            if line.startswith("model name")
        ),
        platform.machine(),
    )
    load_1 = os.getloadavg()[0]
    return (
        f"{model}, {os.cpu_count()} cores, torch {torch.__version__}, load {load_1:.1f}"
    )


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--write", type=Path, help="keep the result in this file")
    arguments.add_argument(
        "--directory", type=Path, help="where to save, for another disk"
    )
    arguments.add_argument(
        "--device", default="cpu", help="where the model is: cpu, cuda"
    )
    asked = arguments.parse_args()
    directory = Path(tempfile.mkdtemp(prefix="checkpoint-", dir=asked.directory))
    where = machine()
    try:
        lines = measure(directory, torch.device(asked.device))
    finally:
        shutil.rmtree(directory)
    today = datetime.now(UTC).date().isoformat()
    text = "\n".join([f"# Saving and restoring, {today}", "", where, *lines, ""])
    print(text)
    if asked.write:
        asked.write.write_text(text)


if __name__ == "__main__":
    main()
