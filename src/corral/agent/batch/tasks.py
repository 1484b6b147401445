"""The tasks of steps on one node: starting them, sending their input, reading their
output, ending them."""

import os
import signal
import subprocess
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import IO, Any, Final

from corral.agent.batch import environment
from corral.agent.batch.frames import Message

READ_BYTES: Final = 65536
NOT_FOUND: Final = 2  # as slurmstepd ends a task that cannot be executed
Say = Callable[[Message, bytes], None]


class Tasks:
    """Tasks of one step on this node. `own` is the environment of the node's rank.
    `say` sends {"type": "output"} and {"type": "end"} messages to the first node; it is
    called from any thread."""

    def __init__(self, step: Message, own: Mapping[str, str], say: Say) -> None:
        self._step = step
        self._own = own
        self._say = say
        self._running: dict[int, subprocess.Popen[bytes]] = {}
        self._ended = False

    def start(self) -> None:
        """Start all tasks of this node.

        Each task reports its end, including a task that could not be started.
        """
        for local in range(self._step["tasks"]):
            task = self._step["first_task"] + local
            try:
                process = self._spawn_task(local)
            except OSError as trouble:
                program = self._step["words"][0]
                node = self._own.get("SLURMD_NODENAME", "")
                text = f"slurmstepd-{node}: error: execve(): {program}: {trouble.strerror}\n"
                self._say(self._about("output", task, stream="err"), text.encode())
                self._say(self._about("end", task, code=NOT_FOUND), b"")
                continue
            self._running[task] = process
            threading.Thread(
                target=self._watch_task, args=(task, process), daemon=True
            ).start()
        if self._ended:
            self.signal(signal.SIGKILL)

    def _spawn_task(self, local: int) -> "subprocess.Popen[bytes]":
        step = self._step
        env = environment.of_task(
            step["env"],
            self._own,
            place=step["place"],
            first_task=step["first_task"],
            local=local,
            tasks=step["tasks"],
            task_gpus=step["task_gpus"],
        )
        task = step["first_task"] + local
        folder = step["folder"]
        if not os.path.isdir(folder):
            text = f"slurmstepd: error: couldn't chdir to `{folder}': going to {os.getcwd()}\n"
            self._say(self._about("output", task, stream="err"), text.encode())
            folder = os.getcwd()
        hears = step["input"] in ("all", task)
        return subprocess.Popen(
            step["words"],
            env=env,
            cwd=folder,
            stdin=subprocess.PIPE if hears else subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )

    def _watch_task(self, task: int, process: "subprocess.Popen[bytes]") -> None:
        readers = [
            threading.Thread(target=self._read, args=(task, stream, file), daemon=True)
            for stream, file in (("out", process.stdout), ("err", process.stderr))
        ]
        for reader in readers:
            reader.start()
        code = process.wait()
        for reader in readers:
            reader.join(2.0)  # what it left behind may hold its output open
        self._say(self._about("end", task, code=code), b"")

    def _read(self, task: int, stream: str, file: IO[bytes]) -> None:
        with file:
            while data := os.read(file.fileno(), READ_BYTES):
                self._say(self._about("output", task, stream=stream), data)

    def feed(self, data: bytes) -> None:
        """Write data to the standard input of each task that has one. Empty data closes
        the standard input."""
        for process in self._running.values():
            if process.stdin is None:
                continue
            with suppress(OSError, ValueError):
                if data:
                    process.stdin.write(data)
                    process.stdin.flush()
                else:
                    process.stdin.close()

    def signal(self, number: int) -> None:
        for process in self._running.values():
            if process.poll() is None:
                with suppress(OSError):
                    os.killpg(process.pid, number)

    def end(self) -> None:
        """Kill all tasks, because srun no longer reads their output."""
        self._ended = True
        self.signal(signal.SIGKILL)

    def _about(self, kind: str, task: int, **more: Any) -> Message:
        return {"type": kind, "step": self._step["step"], "task": task, **more}
