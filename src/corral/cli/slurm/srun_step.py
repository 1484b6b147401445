"""srun within a job: run tasks on the job's nodes, and pass on their output and exit
codes."""

import os
import signal
import socket
import sys
import threading
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict
from types import FrameType
from typing import Any, Final

from corral.agent.batch.frames import Frames
from corral.agent.batch.layout import SrunOptions
from corral.wire.slurm import value_forms
from corral.wire.slurm.hostlist import expand
from corral.wire.slurm.options import ParsedOptions
from corral.wire.slurm.paths import file_name
from corral.wire.slurm.slurm_errors import SlurmRefusal

READ_BYTES: Final = 65536
Message = dict[str, Any]


class SrunStep:
    """One srun command: its options and the progress of its tasks."""

    def __init__(self, read: ParsedOptions, frames: Frames) -> None:
        self._read = read
        self._frames = frames
        self._number = ""
        self._nodes: list[str] = []
        self._sizes: list[int] = []
        self._codes: dict[int, int] = {}
        self._files: dict[str, int] = {}
        self._partial: dict[tuple[int, str], bytes] = {}

    def run(self) -> int:
        """Run the step, and return the highest exit code of its tasks."""
        self._frames.send(_build_request(self._read))
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, self._pass_on)
        while (heard := self._frames.receive()) is not None:
            message, data = heard
            if message["type"] == "refused":
                raise SlurmRefusal(*str(message["why"]).splitlines())
            if message["type"] == "began":
                self._start_step(message)
            elif message["type"] == "output":
                self._write_output(int(message["task"]), str(message["stream"]), data)
            elif message["type"] == "end" and self._record_task_exit(message):
                break
        self._flush_partial_lines()
        if len(self._codes) < sum(self._sizes) or not self._sizes:
            print(
                "srun: error: the step ended before all of its tasks; its job was probably "
                "stopped",
                file=sys.stderr,
            )
            return 1
        return max(
            (code if code >= 0 else 128 - code for code in self._codes.values()),
            default=0,
        )

    def _start_step(self, message: Message) -> None:
        self._number = str(message["step"])
        self._nodes = list(message["nodes"])
        self._sizes = list(message["layout"]["tasks"])
        if _input_target(self._read) != "none":
            threading.Thread(target=self._forward_stdin, daemon=True).start()

    def _forward_stdin(self) -> None:
        """Send standard input, or a file, to the tasks that receive it."""
        input_path = self._read.get("input")
        is_file = (
            input_path is not None
            and input_path not in ("all", "none")
            and not input_path.isdecimal()
        )
        source = os.open(self._path(input_path or "", 0), os.O_RDONLY) if is_file else 0
        with suppress(OSError):
            while data := os.read(source, READ_BYTES):
                self._frames.send({"type": "input"}, data)
            self._frames.send({"type": "input"})

    def _pass_on(self, number: int, frame: FrameType | None) -> None:
        self._signal_all(number)

    def _signal_all(self, number: int) -> None:
        with suppress(OSError):
            self._frames.send({"type": "signal", "number": number})

    # -- output

    def _write_output(self, task: int, stream: str, data: bytes) -> None:
        if self._read.has("label"):
            data = self._label_lines(task, stream, data)
        target = self._output_descriptor(task, stream)
        with suppress(BrokenPipeError):
            remaining_bytes = memoryview(data)
            while remaining_bytes:
                remaining_bytes = remaining_bytes[os.write(target, remaining_bytes) :]

    def _label_lines(self, task: int, stream: str, data: bytes) -> bytes:
        """Return the complete lines of the output, each with the label of its task. An
        incomplete line is kept until its end arrives."""
        lines = (self._partial.pop((task, stream), b"") + data).split(b"\n")
        if lines[-1]:
            self._partial[(task, stream)] = lines[-1]
        width = len(str(max(0, sum(self._sizes) - 1)))
        return b"".join(
            f"{task:>{width}}: ".encode() + line + b"\n" for line in lines[:-1]
        )

    def _flush_partial_lines(self) -> None:
        for (task, stream), rest in list(self._partial.items()):
            self._partial.pop((task, stream))
            self._write_output(task, stream, rest + b"\n")

    def _output_descriptor(self, task: int, stream: str) -> int:
        """Return the file descriptor for a task's output: a file, which is opened once,
        or srun's own output."""
        output_pattern, err = self._read.get("output"), self._read.get("error")
        pattern = output_pattern if stream == "out" or err is None else err
        if pattern is None:
            return 1 if stream == "out" else 2
        if pattern == "none":
            pattern = os.devnull
        path = self._path(pattern, task)
        if path not in self._files:
            mode = (
                os.O_APPEND
                if (self._read.get("open-mode") or "")[:1] == "a"
                else os.O_TRUNC
            )
            try:
                descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | mode, 0o644)
            except OSError as trouble:
                print(
                    f"srun: error: Could not open stdout file: {trouble}",
                    file=sys.stderr,
                )
                descriptor = 1
            self._files[path] = descriptor
        return self._files[path]

    def _path(self, pattern: str, task: int) -> str:
        node = self._node_of(task)
        env = os.environ
        number = env.get("SLURM_JOB_ID", "")
        patterns = {
            "j": number,
            "J": f"{number}.{self._number}",
            "A": env.get("SLURM_ARRAY_JOB_ID", number),
            "a": env.get("SLURM_ARRAY_TASK_ID", "4294967294"),
            "x": env.get("SLURM_JOB_NAME", ""),
            "u": env.get("SLURM_JOB_USER", ""),
            "s": self._number,
            "t": str(task),
            "n": str(node),
            "N": self._nodes[node] if node < len(self._nodes) else "",
        }
        return os.path.join(
            self._read.get("chdir") or ".", file_name(pattern, patterns)
        )

    def _node_of(self, task: int) -> int:
        """Return the index of the task's node among the nodes of the step."""
        above = 0
        for node_index, size in enumerate(self._sizes):
            above += size
            if task < above:
                return node_index
        return 0

    # -- ends

    def _record_task_exit(self, message: Message) -> bool:
        """Record an exit. Return True for the last."""
        task, code = int(message["task"]), int(message["code"])
        self._codes.setdefault(task, code)
        if code:
            node = self._nodes[self._node_of(task)]
            how = f"Exited with exit code {code}" if code > 0 else _signal_text(-code)
            print(
                f"srun: error: {node}: task {task}: {how}", file=sys.stderr, flush=True
            )
            if self._read.get("kill-on-bad-exit") not in (None, "0"):
                self._signal_all(signal.SIGKILL)
        wait = self._read.get("wait")
        if len(self._codes) == 1 and wait not in (None, "0"):
            timer = threading.Timer(
                float(wait or 0), self._signal_all, (signal.SIGKILL,)
            )
            timer.daemon = True
            timer.start()
        return len(self._codes) == sum(self._sizes)


def _signal_text(number: int) -> str:
    return signal.strsignal(number) or f"signal {number}"


def _input_target(read: ParsedOptions) -> str | int:
    """Return which tasks receive standard input: "all", "none", or the number of one
    task."""
    input_mode = read.get("input") or "all"
    if input_mode == "none":
        return "none"
    return int(input_mode) if input_mode.isdecimal() else "all"


def _build_request(read: ParsedOptions) -> Message:
    """Return the request of srun to the first node. Raises: SlurmRefusal."""
    srun_options = SrunOptions(
        nodes=value_forms.nodes(read.get("nodes") or "1")[1]
        if read.has("nodes")
        else None,
        tasks=_parse_count(read, "ntasks"),
        tasks_per_node=_parse_count(read, "ntasks-per-node"),
        cpus_per_task=_parse_count(read, "cpus-per-task"),
        relative=value_forms.count(read.get("relative") or "0", "--relative", least=0),
        on=tuple(_parse_hostlist(read, "nodelist")),
        off=tuple(_parse_hostlist(read, "exclude")),
    )
    gpus = value_forms.typed_count(read.get("gpus-per-task") or "0", "--gpus-per-task")[
        1
    ]
    return {
        "type": "run",
        "asked": asdict(srun_options),
        "words": list(read.rest),
        "env": _environment(read, dict(os.environ)),
        "folder": os.path.join(os.getcwd(), read.get("chdir") or "."),
        "input": _input_target(read),
        "task_gpus": gpus,
    }


def _parse_count(read: ParsedOptions, name: str) -> int | None:
    count_text = read.get(name)
    return None if count_text is None else value_forms.count(count_text, f"--{name}")


def _parse_hostlist(read: ParsedOptions, name: str) -> list[str]:
    try:
        return expand(read.get(name) or "") if read.get(name) else []
    except ValueError as error:
        raise SlurmRefusal(f"Invalid node name specified: {error}") from None


def _environment(read: ParsedOptions, own: Mapping[str, str]) -> dict[str, str]:
    """Return the variables for the tasks. --export takes ALL, NONE, NAME and
    NAME=VALUE; Slurm's and Corral's own variables are always included."""
    export_text = read.get("export")
    export_entries = export_text.split(",") if export_text else ["ALL"]
    variables = {
        name: value
        for name, value in own.items()
        if "ALL" in export_entries
        or name.startswith(("SLURM", "CORRAL_"))
        or name in export_entries
    }
    for export_entry in export_entries:
        name, sign, value = export_entry.partition("=")
        if sign:
            variables[name] = value
    return variables


def run(read: ParsedOptions, path: str) -> int:
    """Run the step through the Unix socket at `path`, and return its exit code.

    Raises: SlurmRefusal if the socket of the job's first node does not answer.
    """
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        connection.connect(path)
    except OSError as trouble:
        raise SlurmRefusal(
            f"Unable to create step for job {os.environ.get('SLURM_JOB_ID', '')}: {trouble}",
            hint="run srun in the batch script of the job, which runs on its first node",
        ) from None
    return SrunStep(read, Frames(connection)).run()
