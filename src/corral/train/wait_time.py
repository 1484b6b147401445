"""Measurement of the time that a rank waits for other ranks: for the results of
collectives, and for gradients.

In the rest of its step the rank was busy itself. In a synchronous gang all steps take
equally long, so only this measurement shows which rank delays the others. On a GPU, the
stream waits and not the program: two CUDA events measure the wait, and are read when
both have completed.
"""

import threading
import time
from collections import deque
from collections.abc import Callable
from functools import wraps
from typing import Any

import torch
import torch.distributed as dist
from torch import nn


class Waits:
    """Measurement of the time that this rank waits for other ranks, in steps between
    `begin` and `end`. `seconds`: the total."""

    def __init__(self, model: nn.Module | None, device: torch.device) -> None:
        self.counting = False  # True while a step is under way
        self._cuda = device.type == "cuda"
        self._seconds = 0.0
        self._pairs: deque[tuple[torch.cuda.Event, torch.cuda.Event]] = deque()
        self._since: Any = None
        self._model = (
            model if isinstance(model, nn.parallel.DistributedDataParallel) else None
        )
        self._hooks: list[Any] = []
        self._thread = 0
        self._wait: Any = None
        self._backward: Any = None

    @property
    def seconds(self) -> float:
        """Return the seconds waited. On a GPU, only waits that the GPU has already
        completed are included."""
        while self._pairs and self._pairs[0][1].query():  # type: ignore[no-untyped-call]
            start_event, end_event = self._pairs.popleft()
            self._seconds += start_event.elapsed_time(end_event) / 1000.0
        return self._seconds

    def begin(self) -> None:
        """Start to measure the waits of this thread. With fewer than two ranks, do
        nothing."""
        if (
            self._wait is not None
            or not dist.is_initialized()
            or dist.get_world_size() < 2
        ):
            return
        self._thread = threading.get_ident()
        self._wait, self._backward = dist.Work.wait, torch.autograd.backward
        dist.Work.wait = self._wrap_collective_wait(self._wait)  # type: ignore[method-assign]
        if self._model is not None:
            self._hook_ddp_model(self._model)

    def end(self) -> None:
        if self._wait is None:
            return
        dist.Work.wait = self._wait  # type: ignore[method-assign]
        torch.autograd.backward = self._backward
        for hook in self._hooks:
            hook.remove()
        self._hooks, self._wait = [], None

    def _hook_ddp_model(self, model: nn.parallel.DistributedDataParallel) -> None:
        """Measure the waits of DDP in C++: for the buffers of all ranks before the
        forward pass, and for the gradients after the backward pass."""
        first_parameter = next(
            (parameter for parameter in model.parameters() if parameter.requires_grad),
            None,
        )
        self._hooks += [
            model.register_forward_pre_hook(self._set_out),
            model.module.register_forward_pre_hook(self._arrived),
        ]
        if first_parameter is not None:
            watched: Any = first_parameter
            self._hooks.append(
                watched.register_post_accumulate_grad_hook(self._set_out)
            )
            torch.autograd.backward = self._watched(self._backward)

    def _wrap_collective_wait(self, original: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(original)
        def wait(*args: Any, **more: Any) -> Any:
            if not self.counting or threading.get_ident() != self._thread:
                return original(*args, **more)
            started_at = self._now()
            try:
                return original(*args, **more)
            finally:
                self._count(started_at)

        return wait

    def _watched(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """Wrap the backward function, which at its end waits for the gradients of all
        ranks. The time after this rank's last gradient is counted as waiting."""

        @wraps(original)
        def backward(*args: Any, **more: Any) -> Any:
            self._since = None
            result = original(*args, **more)
            self._arrived()
            return result

        return backward

    def _set_out(self, *_: Any) -> None:
        self._since = self._now() if self.counting else None

    def _arrived(self, *_: Any) -> None:
        if self._since is not None:
            self._count(self._since)
            self._since = None

    def _now(self) -> Any:
        if not self._cuda:
            return time.monotonic()
        event = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
        event.record()
        return event

    def _count(self, since: Any) -> None:
        now = self._now()
        if self._cuda:
            self._pairs.append((since, now))
        else:
            self._seconds += now - since
