"""Batches for a training loop: the wait for them by its parts, and the passes of a
step."""

import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final, TypeVar

import torch
from torch import nn

from corral.domain.errors import Refusal
from corral.train.data.adapters.position_adapter import PositionAdapter
from corral.train.data.read_times import ReadTimes
from corral.train.data.sample_shares import MicroBatch
from corral.train.data.stream_position import StreamPosition
from corral.train.step_timer import DataWait, Meter

# of a loader: its data sets and samplers, which may be those of the run
_PARTS: Final = ("batch_sampler", "sampler", "dataset")
T = TypeVar("T")


class NoPasses(Refusal):
    """The error for a run whose data cannot be divided into passes."""

    code = "no_passes"


class DataFeed:
    """The source of a run's batches, and its position, which a save contains.

    Args:
        position: The object that Run.resume has received as `data`.
        device: Device to which batches are copied on request.
        meter: Returns the meter of the present training loop.
    """

    def __init__(
        self,
        position: Any,
        model: nn.Module | None,
        device: torch.device,
        meter: Callable[[], Meter],
    ) -> None:
        self._position = position
        self._model = model
        self._device = device
        self._meter = meter

    def batches(self, source: Iterable[T], *, to_device: bool) -> Iterator[T]:
        """Yield the batches of the source, and measure the wait for each."""
        parts = [source, *(getattr(source, name, None) for name in _PARTS)]
        position = self._position
        is_of_run = any(part is position for part in parts)
        if is_of_run and hasattr(position, "delivered"):
            position.count_on_delivery()
        else:
            is_of_run = False
        if isinstance(position, PositionAdapter) and position.source is source:
            source = position
        times = _times_of(parts)
        drawn = torch.get_rng_state()
        iterator = iter(source)
        torch.set_rng_state(drawn)
        worked = times.totals() if times else (0.0, 0.0)
        while True:
            began = time.monotonic()
            try:
                batch = next(iterator)
            except StopIteration:
                return
            arrived = time.monotonic()
            if to_device:
                batch = _copied(batch, self._device)
            copied = time.monotonic()
            totals = times.totals() if times else worked
            read_seconds, decode_seconds = _split(arrived - began, worked, totals)
            worked = totals
            self._meter().add_data_wait(
                DataWait(
                    seconds=copied - began,
                    read_seconds=read_seconds,
                    decode_seconds=decode_seconds,
                    copy_seconds=copied - arrived if to_device else 0.0,
                )
            )
            if is_of_run:
                position.delivered()
            yield batch

    def micro_batches(self, batches: Iterator[Any]) -> Iterator[MicroBatch]:
        """Yield the passes of this step. Gradients are exchanged in the last alone.

        Raises: NoPasses if the data of the run is not a Sampler or Reader.
        """
        position = self._position
        if not isinstance(position, StreamPosition):
            raise NoPasses(
                "run.micro_batches needs run.resume(data=...) with a Sampler or a Reader",
                hint="use corral.train.Sampler(len(dataset), global_batch=512, micro_batch=8)",
            )
        last = len(position.ranges) - 1
        try:
            for number, samples in enumerate(position.ranges):
                self._exchange_gradients(number == last)
                yield MicroBatch(
                    batch=next(batches),
                    weight=position.division.weight(samples.count),
                    samples=samples.count,
                    is_last=number == last,
                )
        finally:
            self._exchange_gradients(True)

    def _exchange_gradients(self, is_on: bool) -> None:
        """Let the following forward and backward passes of the model exchange gradients
        among ranks, or not."""
        model: Any = self._model
        if isinstance(model, nn.parallel.DistributedDataParallel):
            model.require_backward_grad_sync = is_on
        elif hasattr(model, "set_requires_gradient_sync"):  # of FSDP2
            model.set_requires_gradient_sync(is_on)


def _times_of(parts: Iterable[Any]) -> ReadTimes | None:
    for part in parts:
        times = getattr(part, "times", None)
        if isinstance(times, ReadTimes):
            return times
    return None


def _split(
    wait_seconds: float, before: tuple[float, float], after: tuple[float, float]
) -> tuple[float, float]:
    """Return the seconds of reading and of decoding in a wait, in the proportion in
    which the workers spent their time meanwhile."""
    read_seconds, decode_seconds = (
        new - old for new, old in zip(after, before, strict=True)
    )
    worked_seconds = read_seconds + decode_seconds
    if worked_seconds <= 0:
        return 0.0, 0.0
    scale = wait_seconds / worked_seconds
    return read_seconds * scale, decode_seconds * scale


def _copied(batch: Any, device: torch.device) -> Any:
    """Return the batch with all its tensors on the device."""
    if isinstance(batch, torch.Tensor):
        return batch.to(device)
    if isinstance(batch, dict):
        return {key: _copied(value, device) for key, value in batch.items()}
    if isinstance(batch, tuple) and hasattr(batch, "_fields"):
        return type(batch)(*(_copied(value, device) for value in batch))
    if isinstance(batch, list | tuple):
        return type(batch)(_copied(value, device) for value in batch)
    return batch
