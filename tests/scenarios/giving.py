"""Jobs that give way, and for whom: they train and save, or only wait, till their file
is there."""

import sys
from pathlib import Path

from corral.wire import api
from tests.scenarios.house import House, until, wait_in_shell

TRAIN = """
import os, pathlib, time
import torch
import corral.train as train

model = torch.nn.Linear(4, 4)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
run = train.start()
run.resume(model=model, optimizer=optimizer)
for step in run.steps(until=1_000_000):
    model(torch.ones(4)).sum().backward()
    while pathlib.Path(os.environ["FROZEN"]).exists():
        time.sleep(0.05)
    optimizer.step()
    time.sleep(0.02)
    if pathlib.Path(os.environ["FINISH"]).exists():
        break
"""


def train(here: House, name: str, queue: str, **more: object) -> str:
    """A job on two GPUs that really trains, and saves when told to. While the file
    `frozen` is there its step lasts."""
    work = here.root.parent / name
    work.mkdir()
    (work / "train.py").write_text(TRAIN)
    return here.submit(
        name,
        f"{sys.executable} train.py",
        workdir=str(work),
        queue=queue,
        resources={"gpu": 2, "cpu": 0.1},
        env={
            "FINISH": str(here.shared / f"{name}.done"),
            "FROZEN": str(here.shared / "frozen"),
        },
        # none is removed: a test may look for one when many have followed it
        checkpoint={
            "path": str(here.shared / f"{name}-saves"),
            "interval": "1s",
            "keep": 10_000,
        },
        watch={"hang": "off"},  # a frozen step would be taken for a hang
        **more,
    )


def waits(here: House, name: str, queue: str, *, gpus: int = 2, **more: object) -> str:
    """A job that neither trains nor saves."""
    return here.submit(
        name,
        wait_in_shell(here.shared / f"{name}.done"),
        queue=queue,
        resources={"gpu": gpus, "cpu": 0.1},
        grace="1s",
        **more,
    )


def finish(here: House, *names: str) -> None:
    for name in names:
        (here.shared / f"{name}.done").touch()


def has_saved(here: House, id: str) -> bool:
    return bool(here.job(id).checkpoints)


def receipt(job: api.JobDetail, kind: str) -> api.ReceiptView:
    (found,) = [one for one in job.receipts if one.kind == kind]
    return found


def went_on(here: House, id: str, given: api.ReceiptView) -> None:
    """Its next attempt began at just the step that its receipt names, and came
    further."""
    until(
        lambda: (
            (p := here.job(id).progress) and p.step > (given.resumed_from_step or 0)
        ),
        id,
    )
    job = here.job(id)
    assert (job.attempt, job.infra_retries, job.user_retries) == (2, 0, 0)
    assert job.attempts[1].resume_step == given.resumed_from_step
    (save,) = [one for one in job.checkpoints if one.step == given.resumed_from_step]
    assert (save.attempt, save.quarantined) == (1, "")
    assert Path(save.path).is_dir()
