"""What the ranks of test_exit.py run: little training, and notes of what is left of the
process groups when the interpreter ends.

EXIT_CASE (JSON): out, the folder of the notes; script_group, whether the script makes
the default group; stop, whether training ends by a stop; second_training, whether there
was a training before.
"""

import atexit
import json
import os
import signal
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

import corral.train as train
from corral.train import process_group
from tests.patience import NEVER_SECONDS, PATIENCE_SECONDS
from tests.train.jobs import make_model

RANK = int(os.environ["RANK"])
CASE: dict[str, Any] = json.loads(os.environ["EXIT_CASE"])


def note_groups_at_exit() -> None:
    """Write what is left at the very end. Called before the run begins, so that the
    handler is the last of all."""
    atexit.register(note_groups)


def note_groups() -> None:
    names = []
    for task in Path("/proc/self/task").iterdir():
        with suppress(OSError):
            names.append((task / "comm").read_text().strip())
    note(initialized=dist.is_initialized(), workers=names.count("pt_gloo_runloop"))


def note(**words: Any) -> None:
    path = Path(CASE["out"]) / f"exit-{RANK}"
    old = json.loads(path.read_text()) if path.exists() else {}
    path.with_suffix(".new").write_text(json.dumps(old | words))
    path.with_suffix(".new").rename(path)


def train_and_end() -> None:
    """Train with saves, until the last step or until a stop."""
    note_groups_at_exit()
    if CASE["script_group"]:
        dist.init_process_group("gloo")
    run = train.start()
    model = make_model("ddp", RANK)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    run.resume(model=model, optimizer=optimizer)
    for step in run.steps(until=10_000 if CASE["stop"] else 4):
        model(torch.randn(4, 16)).sum().backward()
        optimizer.step()
        if step == 2 and CASE["stop"] and RANK == 1:
            os.kill(os.getpid(), signal.SIGTERM)


def evaluate_after_training() -> None:
    """Reduce after the last step, and again in an exit handler."""
    run = train.start()
    atexit.register(lambda: note(in_handler=sum_of_ranks()))
    for _ in run.steps(until=2):
        pass
    note(after_training=sum_of_ranks())


def sum_of_ranks() -> float:
    total = torch.tensor(float(RANK))
    dist.all_reduce(total)
    return total.item()


def end_before_the_others() -> None:
    note_groups_at_exit()
    for _ in train.start().steps(until=2):
        pass
    if RANK > 0:
        wait_until_rank_0_is_gone()


def reduce_alone_and_end() -> None:
    """Leave rank 0 with a collective that no other rank joins."""
    process_group.LEAVE_SECONDS = 0.1  # type: ignore[misc]
    for _ in train.start().steps(until=2):
        pass
    if RANK == 0:
        dist.all_reduce(torch.ones(1), async_op=True)
    else:
        wait_until_rank_0_is_gone()


def fail_in_training() -> None:
    """Fail on rank 0 in its second step, while the others are in their first: its
    agreement with them is pending."""
    process_group.LEAVE_SECONDS = NEVER_SECONDS  # type: ignore[misc]
    run = train.start()
    first_step = 0
    if CASE["second_training"]:
        first_step = 2
        for _ in run.steps(until=first_step):
            pass
    for step in run.steps(until=10_000):
        if RANK > 0:
            wait_until_rank_0_is_gone()
        elif step > first_step:
            raise RuntimeError("the script fails")


def wait_until_rank_0_is_gone() -> None:
    gone = Path(CASE["out"]) / "rank-0-is-gone"
    until = time.monotonic() + PATIENCE_SECONDS
    while not gone.exists():
        if time.monotonic() > until:
            raise AssertionError("rank 0 does not end")
        time.sleep(0.01)
