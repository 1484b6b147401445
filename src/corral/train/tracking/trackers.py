"""Copies of what `run.log` records for the experiment trackers that the script has
begun. Their packages are never imported here."""

import gc
import os
import sys
import weakref
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any, Final

from corral.train.save.saver import say
from corral.train.tracking.attempt_runs import record_mlflow_run

MOST_POINTS: Final = 1000  # between two heartbeats; the oldest are dropped
WANDB: Final = "wandb"
MLFLOW: Final = "mlflow"
TENSORBOARD: Final = "torch.utils.tensorboard.writer"
# heartbeats between two searches for a writer of TensorBoard, which cost some ms
LONGEST_SEARCH_PAUSE: Final = 64
Values = dict[str, Any]


class Trackers:
    """Points that wait for the trackers of this rank.

    Values are read from the GPU only in `push`, because reading waits for the GPU. A
    tracker that raises is not used any more; training goes on. `is_used` False: another
    rank records the points.
    """

    def __init__(self, *, is_used: bool) -> None:
        self._is_used = is_used
        self._points: deque[tuple[int, Values]] = deque(maxlen=MOST_POINTS)
        self._failed: set[str] = set()
        self._writers: list[weakref.ref[Any]] = []
        self._search_pause = 1
        self._search_in = 0
        self._mlflow_run = ""

    def record(self, step: int, values: Mapping[str, Any]) -> None:
        """Record the values of a step, as numbers or tensors of one element."""
        has_tracker = any(name in sys.modules for name in (WANDB, MLFLOW, TENSORBOARD))
        if self._is_used and values and has_tracker:
            self._points.append((step, {k: _copied(v) for k, v in values.items()}))

    def push(self) -> None:
        """Send all points to the trackers that have begun."""
        if not self._points:
            return
        points = [
            (step, {name: float(value) for name, value in values.items()})
            for step, values in self._points
        ]
        self._points.clear()
        self._try(WANDB, lambda module: _push_wandb(module, points))
        self._try(MLFLOW, lambda module: self._push_mlflow(module, points))
        self._try(TENSORBOARD, lambda module: self._push_tensorboard(module, points))

    def flush(self) -> None:
        """Send all points, and wait until the trackers have written them."""
        if not self._is_used:
            return
        self.push()
        self._try(MLFLOW, self._flush_mlflow)
        self._try(TENSORBOARD, lambda _: [writer.flush() for writer in self._open()])

    def _try(self, name: str, use: Callable[[Any], object]) -> None:
        module = sys.modules.get(name)
        if module is None or name in self._failed:
            return
        try:
            use(module)
        except Exception as error:  # of a package that is not ours: any may come
            self._failed.add(name)
            say(f"run.log does not go to {name} any more: {error!r}")

    def _push_mlflow(self, module: Any, points: list[tuple[int, Values]]) -> None:
        active_run = module.active_run()
        if active_run is None:
            return
        run_id = active_run.info.run_id
        if run_id != self._mlflow_run:
            self._mlflow_run = run_id
            record_mlflow_run(os.environ, run_id)
        for step, values in points:
            module.log_metrics(values, step=step, synchronous=False)

    def _flush_mlflow(self, module: Any) -> None:
        if self._mlflow_run:
            module.flush_async_logging()

    def _push_tensorboard(self, module: Any, points: list[tuple[int, Values]]) -> None:
        if self._is_search_due():
            self._writers = [weakref.ref(w) for w in _living(module.SummaryWriter)]
        for writer in self._open():
            for step, values in points:
                for name, value in values.items():
                    writer.add_scalar(name, value, step)

    def _open(self) -> list[Any]:
        """Return the writers of TensorBoard that are not closed."""
        writers = (reference() for reference in self._writers)
        return [w for w in writers if w is not None and w.all_writers is not None]

    def _is_search_due(self) -> bool:
        """Return whether a search for writers is due. The pause doubles with each
        search."""
        if self._search_in > 0:
            self._search_in -= 1
            return False
        self._search_in = self._search_pause
        self._search_pause = min(2 * self._search_pause, LONGEST_SEARCH_PAUSE)
        return True


def _push_wandb(module: Any, points: list[tuple[int, Values]]) -> None:
    run = module.run
    if run is not None:
        for step, values in points:
            run.log(values, step=step)


def _living(writer_type: type) -> list[Any]:
    """Return the objects of this type that exist. Each object refers to its type."""
    types = [writer_type, *writer_type.__subclasses__()]
    return [
        value for value in gc.get_referrers(*types) if isinstance(value, writer_type)
    ]


def _copied(value: Any) -> Any:
    """Return a copy of a tensor, which the program may change before it is read."""
    return value.detach().clone() if hasattr(value, "detach") else value
