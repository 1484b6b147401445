"""Stacks of many processes in few lines: processes that stand at the same place are one
entry."""

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass

from corral.domain.process_stacks import ProcessRole, ProcessStacks, StackFrame


@dataclass(frozen=True, slots=True, kw_only=True)
class MergedStack:
    """A stack that the main threads of several processes have.

    `processes` are ordered by rank. `frames`: the innermost call first.
    """

    processes: tuple[ProcessStacks, ...]
    frames: tuple[StackFrame, ...]

    @property
    def ranks(self) -> tuple[int, ...]:
        return tuple(
            process.rank for process in self.processes if process.rank is not None
        )


def merge_stacks(
    processes: Iterable[ProcessStacks], role: ProcessRole = ProcessRole.RANK
) -> list[MergedStack]:
    """Return the different stacks of the main threads of the processes with this role.
    The stack of the most processes comes first, so that a rank which differs from the
    others is at the end."""
    groups: dict[tuple[StackFrame, ...], list[ProcessStacks]] = defaultdict(list)
    for process in processes:
        thread = process.main_thread
        if process.role is role and thread is not None:
            groups[thread.frames].append(process)
    merged = [
        MergedStack(processes=tuple(sorted(group, key=_order)), frames=frames)
        for frames, group in groups.items()
    ]
    return sorted(
        merged, key=lambda stack: (-len(stack.processes), _order(stack.processes[0]))
    )


def _order(process: ProcessStacks) -> tuple[int, int, int]:
    rank = -1 if process.rank is None else process.rank
    return rank, process.local_rank or 0, process.pid
