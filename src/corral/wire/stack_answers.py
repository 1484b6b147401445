"""Stacks of the processes of an attempt, as the head answers with them."""

from corral.domain.process_stacks import ProcessStacks
from corral.wire.job_parts import ForecastView


class StackFrameView(ForecastView):
    """One call of a stack."""

    function: str
    file: str
    line: int


class ThreadStackView(ForecastView):
    """The calls of one thread, the innermost first."""

    name: str
    is_main: bool
    frames: list[StackFrameView]


class ProcessStacksView(ForecastView):
    """Stacks of one Python process. `role`: rank, launcher or worker. `state`: one
    letter, as in /proc/PID/stat. `trouble`: why the stacks could not be read; ""
    otherwise."""

    node: str
    pid: int
    role: str
    rank: int | None
    has_global_rank: bool
    local_rank: int | None
    state: str
    command: str
    threads: list[ThreadStackView]
    trouble: str

    @classmethod
    def of(cls, node: str, process: ProcessStacks) -> "ProcessStacksView":
        return cls(
            node=node,
            pid=process.pid,
            role=process.role,
            rank=process.rank,
            has_global_rank=process.has_global_rank,
            local_rank=process.local_rank,
            state=process.state,
            command=process.command,
            threads=[
                ThreadStackView(
                    name=thread.name,
                    is_main=thread.is_main,
                    frames=[
                        StackFrameView(
                            function=frame.function, file=frame.file, line=frame.line
                        )
                        for frame in thread.frames
                    ],
                )
                for thread in process.threads
            ],
            trouble=process.trouble,
        )


class NodeTroubleView(ForecastView):
    """A node whose stacks are missing, and why."""

    node: str
    trouble: str


class Stacks(ForecastView):
    """Stacks of the Python processes of an attempt, over its nodes."""

    job: str
    name: str
    attempt: int
    processes: list[ProcessStacksView]
    missing: list[NodeTroubleView]
