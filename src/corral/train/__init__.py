"""Library for training scripts in a job: start, resume, steps, and checkpoints that are
verified.

    import corral.train as train
    run = train.start()
    state = run.resume(model=model, optimizer=optimizer, data=sampler)
    for step in run.steps(until=10_000):
        ...
        run.log(loss=loss, samples=len(batch))

Outside Corral the same script runs alone: with a world size of one, without a socket,
and with saves only if a checkpoint path is given.
"""

from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Final

if find_spec("torch") is None:
    raise ModuleNotFoundError(
        "corral.train needs PyTorch, which is not installed here; run: pip install 'corral[train]'",
        name="torch",
    )

if TYPE_CHECKING:
    from corral.train.data.sampler import Sampler
    from corral.train.run import Run, start
    from corral.train.save.storage import SaveReader
    from corral.train.save.training_state import TrainingState

__all__ = ["SaveReader", "Run", "Sampler", "TrainingState", "start"]

# Loaded when first used: the file-handling half of this room runs without paying for
# torch.
_HOMES: Final = {
    "SaveReader": "corral.train.save.storage",
    "Run": "corral.train.run",
    "Sampler": "corral.train.data.sampler",
    "TrainingState": "corral.train.save.training_state",
    "start": "corral.train.run",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'corral.train' has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)
