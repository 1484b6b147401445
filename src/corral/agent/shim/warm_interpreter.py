"""A warm interpreter: a Python of the job that has imported what ranks import, and from
which the shim forks them.

It runs with short pauses while it imports, because the job's ranks need the CPUs.
"""

import json
import os
import signal
import socket
import struct
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final

from corral.agent.clocks import since_boot
from corral.agent.processes import send
from corral.agent.shim.spawn import Child, Spawned, spawn
from corral.agent.shim.warm_command import PythonCommand, different_variable

RUN_SECONDS: Final = 0.02  # of work, and then
PAUSE_SECONDS: Final = 0.06  # of rest
MOST_IMPORT_SECONDS: Final = 300.0
FORK_SECONDS: Final = 3.0  # for one rank
_ANSWER_BYTES: Final = 1000
_CREDENTIALS: Final = struct.Struct("3i")


class NotForked(Exception):
    """The reason why a rank is not forked from the warm interpreter."""


@dataclass(slots=True, kw_only=True)
class WarmInterpreter:
    """A warm interpreter. `env` is its environment, and `pid` its process. `problem`
    says why it forks no ranks; "" while it may."""

    command: PythonCommand
    env: Mapping[str, str]
    pid: int
    control: socket.socket
    is_ready: bool = False
    problem: str = ""
    began: float = field(default_factory=since_boot)
    _is_stopped: bool = False
    _closed: bool = False

    def turn(self) -> float | None:
        """Let the imports go on after a pause, or pause them. Return the seconds until
        the next turn; None once there is nothing to pause."""
        if self.is_ready or self.problem:
            return None
        if since_boot() - self.began > MOST_IMPORT_SECONDS:
            self.problem = "its imports take too long"
            self.close()
            return None
        self._is_stopped = not self._is_stopped
        send(self.pid, signal.SIGSTOP if self._is_stopped else signal.SIGCONT)
        return PAUSE_SECONDS if self._is_stopped else RUN_SECONDS

    def hear(self) -> None:
        """Read whether the interpreter is ready, or why it is not."""
        try:
            answer, pid = self._receive()
        except OSError as trouble:
            answer, pid = str(trouble), 0
        if answer == "\n" and pid == self.pid:
            self.is_ready = True
        elif answer == "\n":
            self.problem = "the shell runs Python as a child process"
        else:
            self.problem = answer.strip() or "the interpreter ended"
        if self.problem:
            self.close()

    def fork(self, child: Child) -> Spawned:
        """Fork a rank. Raises: NotForked when the rank has to be executed."""
        if not self.is_ready and not self.problem:
            self.problem = "its imports were not complete"
        name = different_variable(self.env, child.env)
        if name and not self.problem:
            self.problem = f"the variable {name} has changed"
        if self.problem:
            raise NotForked(self.problem)
        order = {
            "env": dict(child.env),
            "work": child.work,
            "folder": self.command.program_folder(child.work),
        }
        failure_text = self._send(order, child.stdio)
        try:
            # an interpreter that refuses may have ended before it got the whole order
            answer, pid = self._receive()
        except OSError as trouble:
            answer, pid = failure_text or str(trouble) or "no answer", 0
        if failure_text or answer != "\n":
            self.problem = answer.strip() or failure_text or "the interpreter ended"
            raise NotForked(self.problem)
        failure, say = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        os.close(say)
        return Spawned(pid, failure)

    def _send(
        self, order: Mapping[str, object], descriptors: tuple[int, int, int]
    ) -> str:
        """Send an order with the standard streams of a rank. Return why it could not be
        sent; "" if it was."""
        line = json.dumps(order).encode() + b"\n"
        try:
            self.control.settimeout(FORK_SECONDS)
            sent = socket.send_fds(self.control, [line], list(descriptors))
            self.control.sendall(line[sent:])
        except OSError as trouble:
            return str(trouble) or "the order could not be sent"
        return ""

    def _receive(self) -> tuple[str, int]:
        """Return an answer and the process that has sent it. Raises: OSError."""
        data, ancillary, _, _ = self.control.recvmsg(
            _ANSWER_BYTES, socket.CMSG_SPACE(_CREDENTIALS.size)
        )
        pid = 0
        for level, kind, content in ancillary:
            if (level, kind) == (socket.SOL_SOCKET, socket.SCM_CREDENTIALS):
                pid = _CREDENTIALS.unpack(content)[0]
        return data.decode(errors="replace"), pid

    def close(self) -> None:
        """End the interpreter. Its process is still to be reaped."""
        if not self._closed:
            self._closed = True
            self.control.close()
            send(self.pid, signal.SIGKILL)


def start_warm(child: Child, command: PythonCommand) -> WarmInterpreter:
    """Start a warm interpreter as the process that `child` describes; its standard
    input becomes the connection to it, and its output is discarded. Raises: OSError."""
    ours, child_socket = socket.socketpair()
    with child_socket:
        ours.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
        with open(os.devnull, "r+b", buffering=0) as nowhere:
            stdio = (child_socket.fileno(), nowhere.fileno(), nowhere.fileno())
            spawned = spawn(_with_stdio(child, stdio))
    with suppress(OSError):
        os.close(spawned.failure)
    return WarmInterpreter(
        command=command, env=child.env, pid=spawned.pid, control=ours
    )


def _with_stdio(child: Child, stdio: tuple[int, int, int]) -> Child:
    return Child(
        words=child.words,
        env=child.env,
        work=child.work,
        stdio=stdio,
        account=child.account,
        containment=child.containment,
        inside=child.inside,
    )
