"""GPU demand of a job log over time, as if no job had waited."""

from collections.abc import Sequence
from dataclasses import fields
from math import floor
from typing import Any, Final

from corral.replay.workload import Workload

WEEK_SECONDS: Final = 7 * 86_400.0
# its multiples, without their whole parts, fill 0 to 1 evenly
GOLDEN: Final = (5**0.5 - 1) / 2


def loads(work: Workload, step_seconds: float) -> list[float]:
    """Return the demand in GPUs as one average per step of `step_seconds`. The steps
    begin at second 0; only whole steps before the last submission count.

    Each job counts from its submission, for as long as it ran: its wait on the original
    cluster is not demand. Time after the last submission is left out, as later jobs are
    not known.
    """
    steps = int(work.submits[-1] // step_seconds) if work.submits else 0
    changes, partial_loads = [0.0] * (steps + 1), [0.0] * (steps + 1)
    for begun, seconds, gpus in zip(
        work.submits, work.durations, work.gpus, strict=True
    ):
        ended_at = begun + seconds
        first_step, last_step = (
            int(begun // step_seconds),
            int(ended_at // step_seconds),
        )
        if first_step >= steps:
            continue
        if first_step == last_step:
            partial_loads[first_step] += gpus * seconds / step_seconds
            continue
        partial_loads[first_step] += gpus * ((first_step + 1) - begun / step_seconds)
        changes[first_step + 1] += gpus
        if last_step < steps:
            changes[last_step] -= gpus
            partial_loads[last_step] += gpus * (ended_at / step_seconds - last_step)
    gpu_loads, full_load = [], 0.0
    for step in range(steps):
        full_load += changes[step]
        gpu_loads.append(full_load + partial_loads[step])
    return gpu_loads


def grown(work: Workload, factor: float) -> Workload:
    """Return the log with `factor` times as many jobs. An added job is a copy, shifted
    by some whole weeks against its original (by days if the log is short). A copy that
    would lie past the end of the log is wrapped around to its start. So the pattern of
    days and nights stays.

    Raises: ValueError if the factor is not above 0.
    """
    if factor <= 0:
        raise ValueError(f"the growth factor is {factor:g}: it must be above 0")
    if not work.submits:
        return work
    last_submit = work.submits[-1]
    shift = WEEK_SECONDS if last_submit >= 2 * WEEK_SECONDS else 86_400.0
    rows: list[tuple[float, int]] = []
    for row, submitted_at in enumerate(work.submits):
        lot = row * GOLDEN % 1.0
        copies = floor(factor) + (lot < factor % 1.0)
        if copies:
            rows.append((submitted_at, row))
        rows += [
            (
                (submitted_at + copy * shift) % last_submit
                if last_submit
                else submitted_at,
                row,
            )
            for copy in range(1, copies)
        ]
    rows.sort()
    names = [field.name for field in fields(work) if field.name != "submits"]
    columns = {name: _select_rows(getattr(work, name), rows) for name in names}
    return Workload(submits=[submit_time for submit_time, _ in rows], **columns)


def _select_rows(
    values: Sequence[Any], rows: Sequence[tuple[float, int]]
) -> Sequence[Any]:
    """Return the column's values for these rows, in their order; an empty column, which
    the log does not have, stays empty."""
    return [values[row] for _, row in rows] if values else values
