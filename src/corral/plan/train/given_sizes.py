"""Check of the sizes of a layout that a user gives: whether they are possible, and how
many GPUs would suffice."""

from collections.abc import Sequence
from dataclasses import replace
from math import lcm
from typing import Final

from corral.domain.errors import Refusal
from corral.domain.units import counted
from corral.plan.train.layout_text import words
from corral.plan.train.layouts import (
    SHORTEST,
    Fitting,
    RefusedLayouts,
    TrainAsk,
    divisors,
    layouts,
)

MOST_GPUS: Final = 65_536  # that are tried


class NoLayout(Refusal):
    """No layout of the run fits."""

    code = "no_layout"


def refuse_impossible(ask: TrainAsk) -> None:
    """Refuse given sizes that are never possible, with a hint to possible ones. Raises:
    NoLayout."""
    _refuse_tensor(ask)
    layers, pieces = ask.model.layers, ask.context
    if ask.pipeline > layers:
        raise NoLayout(
            f"{ask.pipeline} pipeline stages are more than the {layers} layers of {ask.model.name}",
            hint=f"give --pipeline {layers} or fewer",
        )
    if pieces > 1 and (ask.sequence % pieces or ask.sequence // pieces < SHORTEST):
        can = [
            divisor
            for divisor in divisors(ask.sequence)
            if ask.sequence // divisor >= SHORTEST
        ]
        raise NoLayout(
            f"{ask.sequence:,} tokens cannot be divided into {pieces} equal pieces of "
            f"{SHORTEST:,} or more",
            hint=f"give --context-parallel {_join_with_or(can or [1])}",
        )
    together = _least_model_gpus(ask)
    if ask.gpus % together:
        raise NoLayout(
            f"{counted(ask.gpus, 'GPU')} cannot be divided into groups of {together:,}, which is "
            "the product of the given sizes",
            hint=f"use {-(-ask.gpus // together) * together:,} GPUs, or other sizes",
        )


def _refuse_tensor(ask: TrainAsk) -> None:
    heads, near = ask.model.heads, ask.device.domain_gpus
    can = [divisor for divisor in divisors(heads) if divisor <= near]
    if ask.tensor and heads % ask.tensor:
        raise NoLayout(
            f"{ask.model.name} has {heads} heads, which is not a multiple of {ask.tensor}",
            hint=f"give --tensor {_join_with_or(can)}",
        )
    if ask.tensor > near:
        raise NoLayout(
            f"tensor parallelism of {ask.tensor} is more than the {counted(near, 'GPU')} of "
            f"{ask.device.title} that fast links connect",
            hint=f"give --tensor {_join_with_or(can)}",
        )


def _join_with_or(numbers: Sequence[int]) -> str:
    *leading_numbers, last_number = map(str, numbers)
    return (
        f"{', '.join(leading_numbers)} or {last_number}"
        if leading_numbers
        else last_number
    )


def _least_model_gpus(ask: TrainAsk) -> int:
    """Return the GPUs that one copy of the model needs with the given layout sizes."""
    return max(ask.tensor, 1) * max(ask.pipeline, 1) * max(ask.context, 1)


def least(ask: TrainAsk) -> Fitting | None:
    """Return the layout that fits on the fewest GPUs, in whole nodes, of all numbers
    above the requested one; None if no layout fits on the largest number that is tried.
    """
    gpu_multiple = lcm(_least_model_gpus(ask), ask.device.node_gpus)

    def on(times: int) -> Fitting | None:
        wider = replace(ask, gpus=times * gpu_multiple)
        return next(layouts(wider, wider.step, RefusedLayouts()), None)

    lower_bound, upper_bound = (
        ask.gpus // gpu_multiple,
        max(ask.gpus // gpu_multiple, 1),
    )
    smallest = on(upper_bound) if upper_bound > lower_bound else None
    while smallest is None:
        lower_bound, upper_bound = upper_bound, 2 * upper_bound
        if upper_bound * gpu_multiple > MOST_GPUS:
            return None
        smallest = on(upper_bound)
    while upper_bound - lower_bound > 1:
        middle = (lower_bound + upper_bound) // 2
        if (fewer := on(middle)) is None:
            lower_bound = middle
        else:
            upper_bound, smallest = middle, fewer
    return smallest


def refused(ask: TrainAsk, tally: RefusedLayouts) -> NoLayout:
    """Return the error when no layout fits. It has the reason, and the fewest GPUs on
    which a layout fits."""
    on = f"{ask.gpus:,} x {ask.device.title}"
    reason = (
        f"{ask.model.name} does not fit in {on}: {near}"
        if (near := tally.why())
        else f"{ask.model.name} has no layout on {on}: every layout {tally.commonest()}"
    )
    alternatives = "a GPU with more memory" + (
        "" if ask.frozen else ", or fine-tune with --lora"
    )
    if (larger_fit := least(ask)) is None:
        return NoLayout(reason, hint=f"use {alternatives}")
    layout = larger_fit[0]
    fewest = f"{counted(layout.gpus, 'GPU')} ({words(layout)})"
    return NoLayout(reason, hint=f"use {fewest}, or {alternatives}")
