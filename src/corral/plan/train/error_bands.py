"""Measured errors of training runs like the requested one."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from corral.catalog.bands import ErrorBand, band, gpu_band
from corral.domain.units import share_text
from corral.plan.train.layouts import TrainAsk

# bands of memory: of Megatron-LM's functional tests,
MEGATRON: Final = "memory_ci.memory"
LIBRARIES: Final = "training.memory"  # and of runs of all kinds of libraries
WIDE: Final = 0.20  # mean errors from this value on are also reported in words


@dataclass(frozen=True, slots=True, kw_only=True)
class Bands:
    """Measured errors of the step time and of memory, for runs like the requested one;
    None without measurements. `like`: a text that names this kind of run, and the GPU.
    """

    like: str
    step: ErrorBand | None
    memory: ErrorBand | None

    @classmethod
    def of(cls, ask: TrainAsk) -> "Bands":
        name, kind = _classify_run(ask)
        step = gpu_band(f"training.step_time.{name}", ask.device.chip)
        is_own = step is not None and step.name.endswith(f".{ask.device.chip}")
        like = f"{kind}, on {ask.device.chip.upper() if is_own else 'other GPUs than this'}"
        in_megatron = ask.by.startswith("megatron") and not ask.frozen
        return cls(
            like=like,
            step=step,
            memory=band(MEGATRON if in_megatron else LIBRARIES),
        )

    def sentences(self) -> Iterator[str]:
        step_label = f"the step time, and of values derived from it, for {self.like}"
        for error_band, quantity in ((self.step, step_label), (self.memory, "memory")):
            if error_band is not None:
                yield error_band.sentence(quantity)

    def cautions(self) -> Iterator[str]:
        """Yield a sentence if the error of the step time is large."""
        if self.step is not None and self.step.quoted >= WIDE:
            yield (
                f"predicted times for {self.like} are less certain than others: the mean error of "
                f"{self.step.measured} is {share_text(self.step.quoted)}, and one in ten is off "
                f"by more than {share_text(self.step.p90)}"
            )


def _classify_run(ask: TrainAsk) -> tuple[str, str]:
    if ask.frozen:
        return "lora", "LoRA on frozen models"
    if ask.model.experts is not None:
        return "experts", "models with experts"
    if ask.precision.bytes < 2:
        return "narrow", "dense models in 8 bits or fewer"
    if ask.gpus > ask.device.node_gpus:
        return "nodes", "dense models on several nodes"
    return "one_node", "dense models on one node"
