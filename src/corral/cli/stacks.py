"""The command debug stacks: at which line the processes of a job are."""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Annotated, Final

from cyclopts import Parameter

from corral.cli.head_options import Common, Count
from corral.cli.printing import clean, note, print_json, say
from corral.domain.process_stacks import (
    ProcessRole,
    ProcessStacks,
    StackFrame,
    ThreadStack,
)
from corral.domain.units import counted
from corral.health.merged_stacks import MergedStack, merge_stacks

if TYPE_CHECKING:
    from corral.wire.stack_answers import ProcessStacksView, Stacks

STATES: Final = {"D": "waits for a device", "T": "stopped", "t": "stopped"}
IMPORTS: Final = "<frozen importlib"  # calls with which Python imports a module
INSTALLED: Final = ("/site-packages/", "/dist-packages/", "/lib/python")
FUNCTION_WIDTH: Final = 32
MOST_LETTERS: Final = 300  # of a name that a program has chosen


def stacks(
    job: str,
    /,
    *,
    rank: Count | None = None,
    every: Annotated[
        bool, Parameter(name="--all", negative="", show_default=False)
    ] = False,
    common: Common = Common(),  # noqa: B008 - frozen
) -> None:
    """Show at which line each rank of a job is.

    Args:
        job: Id of a job, or the name of the newest job of this name.
        rank: Show only this rank; ranks count from 0.
        every: Show all threads, and also processes that load data or start ranks.
    """
    with common.client() as client:
        answer = client.stacks(job, rank=rank)
    if common.json:
        print_json(answer)
        return
    processes = [_process_of(view) for view in answer.processes]
    if every:
        lines = list(_lines_of_all(answer.processes, processes))
    else:
        lines = list(_lines_of_ranks(processes, rank))
    for line in lines:
        say(line)
    _note_missing(answer, processes)


def _lines_of_ranks(
    processes: Sequence[ProcessStacks], rank: int | None
) -> Iterator[str]:
    wanted = [
        process for process in processes if rank is None or process.rank == rank
    ] or processes
    merged = merge_stacks(wanted)
    total = sum(len(stack.processes) for stack in merged)
    for stack in merged:
        yield _heading(stack, total)
        yield from _frame_lines(stack.frames)
        yield ""


def _heading(stack: MergedStack, total: int) -> str:
    places = ", ".join(_place(process) for process in stack.processes)
    states = {STATES[p.state] for p in stack.processes if p.state in STATES}
    state = f" ({', '.join(sorted(states))})" if states else ""
    if total == 1:
        return f"{places}{state}"
    return f"{len(stack.processes)} of {counted(total, 'process', 'processes')}: {places}{state}"


def _place(process: ProcessStacks) -> str:
    """Return the name of a process. Lightning starts all processes of a node with the
    same RANK."""
    if process.rank is None:
        return f"process {process.pid}"
    local = process.local_rank
    if local is None or process.has_global_rank:
        return f"rank {process.rank}"
    return f"rank {process.rank} (local rank {local})"


def _lines_of_all(
    views: Sequence["ProcessStacksView"], processes: Sequence[ProcessStacks]
) -> Iterator[str]:
    for view, process in zip(views, processes, strict=True):
        state = STATES.get(process.state, "")
        yield (
            f"{_place(process)}, {process.role}, process {process.pid} on {view.node}"
            f"{': ' + state if state else ''}: {process.command}"
        )
        if process.trouble:
            yield f"  {process.trouble}"
        for thread in process.threads:
            yield f"  thread {thread.name or 'without a name'}"
            yield from (f"  {line}" for line in _frame_lines(thread.frames))
        yield ""


def _frame_lines(frames: Sequence[StackFrame]) -> Iterator[str]:
    if not frames:
        yield "  no Python code runs"
    for frame in frames:
        if frame.file.startswith(IMPORTS):
            continue
        yield f"  {frame.function:<{FUNCTION_WIDTH}} {_short_path(frame.file)}:{frame.line}"


def _short_path(path: str) -> str:
    """Return the path without the folder into which packages are installed."""
    for folder in INSTALLED:
        _, separator, rest = path.rpartition(folder)
        if separator:
            return rest
    return path


def _note_missing(answer: "Stacks", processes: Sequence[ProcessStacks]) -> None:
    for missing in answer.missing:
        note(f"node {missing.node}: {missing.trouble}")
    troubles = {process.trouble for process in processes if process.trouble}
    for trouble in sorted(troubles):
        count = sum(process.trouble == trouble for process in processes)
        note(f"{counted(count, 'process', 'processes')} not read: {trouble}")
    if not processes and not answer.missing:
        note(f"{answer.name} runs no Python")


def _safe(text: str) -> str:
    """Return a name that a program has chosen, as a bounded part of one line."""
    if len(text) > MOST_LETTERS:
        text = text[: MOST_LETTERS // 2] + "..." + text[-MOST_LETTERS // 2 :]
    return clean(text.replace("\n", "\0").replace("\t", "\0"))


def _process_of(view: "ProcessStacksView") -> ProcessStacks:
    threads = tuple(
        ThreadStack(
            name=_safe(thread.name),
            is_main=thread.is_main,
            frames=tuple(
                StackFrame(
                    function=_safe(frame.function),
                    file=_safe(frame.file),
                    line=frame.line,
                )
                for frame in thread.frames
            ),
        )
        for thread in view.threads
    )
    return ProcessStacks(
        pid=view.pid,
        role=ProcessRole(view.role),
        rank=view.rank,
        has_global_rank=view.has_global_rank,
        local_rank=view.local_rank,
        state=view.state,
        command=_safe(view.command),
        threads=threads,
        trouble=_safe(view.trouble),
    )
