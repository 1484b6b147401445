"""Measurement of how a rank spends its time, by activity, for its heartbeats. The cost
is a few clock readings in each step."""

import math
import time
from dataclasses import dataclass
from typing import Any, Final

from corral.domain.bounds import MOST_SCALARS, SCALAR_LETTERS
from corral.domain.keep_rule import Metrics

BEAT_SECONDS: Final = 0.1
SMOOTHING: Final = 0.5  # weight of the newest rate


@dataclass(frozen=True, slots=True, kw_only=True)
class DataWait:
    """Seconds that training waited for one batch. `read_seconds` and `decode_seconds`
    are 0 for a loader that does not measure them."""

    seconds: float
    read_seconds: float = 0.0
    decode_seconds: float = 0.0
    copy_seconds: float = 0.0


class Meter:
    """Counters of one training loop. Seconds are totals since the loop began."""

    def __init__(self, *, first_step: int, until: int, world_size: int) -> None:
        self.first_step = first_step
        self.until = until
        self.data_seconds = 0.0
        # its parts, as far as they are measured
        self.read_seconds = self.decode_seconds = self.copy_seconds = 0.0
        self.save_seconds = 0.0
        self.compute_seconds = 0.0
        self.step_seconds = 0.0  # of the newest step
        self._world_size = world_size
        self._loss: Any = None
        # the step whose beat had no finite loss first
        self._nan_since: int | None = None
        self._scalars: dict[str, Any] = {}
        self._samples = 0.0
        self._samples_told = 0.0
        self._rate: float | None = None
        self._data_at_begin = 0.0
        self._step_began = self._told = time.monotonic()

    def log(self, *, loss: Any, samples: float, **scalars: Any) -> None:
        """Record the newest loss and scalars, as numbers or tensors, and the samples of
        this rank.

        Raises: ValueError if a name is too long, or there are too many names.
        """
        if loss is not None:
            self._loss = _detach_tensor(loss)
        for name, value in scalars.items():
            if name not in self._scalars:
                check_name(name, len(self._scalars))
            self._scalars[name] = _detach_tensor(value)
        self._samples += samples

    def add_data_wait(self, wait: DataWait) -> None:
        """Add the wait for a batch."""
        self.data_seconds += wait.seconds
        self.read_seconds += wait.read_seconds
        self.decode_seconds += wait.decode_seconds
        self.copy_seconds += wait.copy_seconds

    def step_done(self) -> float:
        """Record the end of the current step, and return the current time."""
        now = time.monotonic()
        self.step_seconds = now - self._step_began
        data = self.data_seconds - self._data_at_begin
        self.compute_seconds += max(0.0, self.step_seconds - data)
        return now

    def step_begins(self) -> None:
        self._step_began = time.monotonic()
        self._data_at_begin = self.data_seconds

    def due(self, now: float) -> bool:
        return now - self._told >= BEAT_SECONDS

    def beat(self, step: int, now: float) -> dict[str, Any]:
        """Return the fields of a progress message. The loss is read from the GPU only
        in this method, because reading it waits for the GPU."""
        elapsed = now - self._told
        if elapsed > 0 and self._samples > self._samples_told:
            newest_rate = (
                (self._samples - self._samples_told) * self._world_size / elapsed
            )
            old_rate = newest_rate if self._rate is None else self._rate
            self._rate = SMOOTHING * newest_rate + (1 - SMOOTHING) * old_rate
        self._samples_told = self._samples
        self._told = now
        loss = None if self._loss is None else float(self._loss)
        if loss is not None:
            is_number = math.isfinite(loss)
            self._nan_since = None if is_number else self._nan_since or step
        return {
            "step": step,
            "first_step": self.first_step,
            "until": self.until,
            "loss": _finite_or_none(loss),
            "nan_since": self._nan_since,
            "scalars": {
                name: _finite_or_none(value) for name, value in self._scalars.items()
            },
            "samples_per_second": _finite_or_none(self._rate),
            "data_seconds": round(self.data_seconds, 6),
            "data_read_seconds": round(self.read_seconds, 6),
            "data_decode_seconds": round(self.decode_seconds, 6),
            "data_copy_seconds": round(self.copy_seconds, 6),
            "compute_seconds": round(self.compute_seconds, 6),
            "save_seconds": round(self.save_seconds, 6),
        }

    def metrics(self) -> Metrics:
        """Return the newest finite loss and scalars by name, for a save. They are read
        from the GPU here."""
        logged = {"loss": self._loss, **self._scalars}
        values = {name: _finite_or_none(value) for name, value in logged.items()}
        pairs = sorted(
            (name, value) for name, value in values.items() if value is not None
        )
        return tuple(pairs[:MOST_SCALARS])


def check_name(name: str, known: int) -> None:
    """Check the name of a new scalar. `known`: number of names in use already.

    Raises: ValueError if the name is too long, or if there are too many names.
    """
    if len(name) > SCALAR_LETTERS:
        raise ValueError(
            f"the scalar name {name[:20]!r}... has {len(name)} characters; at most "
            f"{SCALAR_LETTERS} are allowed"
        )
    if known >= MOST_SCALARS:
        raise ValueError(
            f"the scalar {name!r} is not accepted: a job has at most {MOST_SCALARS} scalars"
        )


def _detach_tensor(value: Any) -> Any:
    return value.detach() if hasattr(value, "detach") else value


def _finite_or_none(number: Any) -> float | None:
    """Return the number as a float, or None if JSON cannot represent it."""
    if number is None:
        return None
    value = float(number)
    return value if math.isfinite(value) else None
