"""One process that the shim started, a rank or the setup before it: its output and its
exit status."""

import os
import socket
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from corral.agent.output_capture import RankLog
from corral.agent.shim.event_loop import Loop
from corral.agent.shim.spawn import Child, Spawned, spawn
from corral.agent.shim.stdin_wait import waits_for_input

READ_BYTES: Final = 65536
TURN_BYTES: Final = 1024 * 1024  # in one turn, so that no rank keeps the others waiting
# after a full turn: 64 MB/s of output are read, more has to wait
PAUSE_SECONDS: Final = 1 / 64
END_OF_INPUT: Final = b"\x04"  # also what a terminal takes for it
# whether it waits for input; twice as late while it does not
FIRST_LOOK_SECONDS: Final = 5.0
LAST_LOOK_SECONDS: Final = 600.0
WAITS_LOOK_SECONDS: Final = 20.0  # whether it still does
WAITS: Final = (
    "waits for standard input: type it with corral attach, or give the program its input in run: "
    "(< FILE, < /dev/null, --yes)"
)
LAST_BYTES: Final = 4 * 1024 * 1024  # read of what is left in the pipe after the end


def tell_end(connection: socket.socket, status: int) -> None:
    """Send the exit code of a process, as a shell would report it, to a client that is
    still connected."""
    code = os.waitstatus_to_exitcode(status)
    with connection, suppress(OSError):
        connection.sendall(f"{code if code >= 0 else 128 - code}\n".encode())


@dataclass(frozen=True, slots=True, kw_only=True)
class Listener:
    """A client that receives a rank's output on `output`, and at the end the rank's
    exit code on `end`."""

    output: socket.socket
    end: socket.socket

    def close(self, status: int | None) -> None:
        """Close the connections of the client. `status` is None when the rank's exit
        status is not known."""
        if status is not None:
            tell_end(self.end, status)
        self.end.close()
        self.output.close()


class Rank:
    """One process of the attempt: a rank or the setup. `number` is its rank in the
    gang. `exec_failed`: the reason why the program did not start."""

    def __init__(
        self,
        loop: Loop,
        number: int,
        log: RankLog,
        waits: Callable[[], None] = lambda: None,
    ) -> None:
        """`waits` is called when `waits_for_input` has changed."""
        self.number = number
        self.waits_for_input = False
        self._waits = waits
        self._noted = False
        self.log = log
        self.pid = 0
        self.runs = False  # the program itself, not just its process
        self.status: int | None = None  # a wait status
        self.exec_failed = ""
        self.stdin = -1
        self.listeners: list[Listener] = []
        self._loop = loop
        self._output = -1
        self._failure = -1

    def start(
        self,
        child: Callable[[tuple[int, int, int]], Child],
        ran: Callable[[], None],
        start_process: Callable[[Child], Spawned] = spawn,
    ) -> None:
        """Start the process that `child` describes. `ran` is called when the program
        runs or could not be started. Raises: OSError."""
        theirs_in, self.stdin = os.pipe2(os.O_CLOEXEC)
        self._output, theirs_out = os.pipe2(os.O_CLOEXEC)
        try:
            spawned = start_process(child((theirs_in, theirs_out, theirs_out)))
        except OSError:
            os.close(self.stdin)
            os.close(self._output)
            self.stdin = self._output = -1
            raise
        finally:
            os.close(theirs_in)
            os.close(theirs_out)
        os.set_blocking(self._output, False)
        self.pid, self._failure = spawned.pid, spawned.failure
        self._loop.watch(self._output, self._read)
        self._loop.watch(self._failure, lambda: self._see_start(ran))
        self._look_later(FIRST_LOOK_SECONDS)

    def _look_later(self, seconds: float) -> None:
        self._loop.later(seconds, lambda: self._look_for_input(seconds))

    def _look_for_input(self, seconds: float) -> None:
        """Check whether the rank waits for input now. When it waits for the first time,
        its log gets a line about that."""
        is_there = not self.is_over and self.stdin >= 0
        waits = (
            is_there and not self.listeners and waits_for_input(self.pid, self.stdin)
        )
        if waits and not self._noted:
            self._noted = True
            self.log.say(f"rank {self.number} {WAITS}")
        if waits != self.waits_for_input:
            self.waits_for_input = waits
            self._waits()
        later = min(seconds, WAITS_LOOK_SECONDS) if waits else 2 * seconds
        if is_there and later <= 2 * LAST_LOOK_SECONDS:
            self._look_later(later)

    @property
    def is_over(self) -> bool:
        return self.status is not None

    def end(self, status: int) -> None:
        """Record the exit status of the reaped process, and read its remaining
        output."""
        self.status = status
        if self._failure >= 0:
            self._see_start(lambda: None)
        self._drain_output(LAST_BYTES)

    def close(self) -> None:
        """Read the remaining output, and close all descriptors and clients. Called when
        no process of the containment is left."""
        self._drain_output(LAST_BYTES)
        for listener in list(self.listeners):
            self._let_go(listener, self.status)
        self._close_output()
        self._close_stdin()

    def _see_start(self, ran: Callable[[], None]) -> None:
        self._loop.watch(self._failure, None)
        with suppress(BlockingIOError):
            self.exec_failed = os.read(self._failure, 512).decode("utf-8", "replace")
        os.close(self._failure)
        self._failure = -1
        self.runs = not self.exec_failed
        ran()

    def _read(self) -> None:
        if not self._drain_output(TURN_BYTES) and self._output >= 0:
            output = self._output
            self._loop.watch(output, None)
            self._loop.later(PAUSE_SECONDS, self._go_on)

    def _go_on(self) -> None:
        if self._output >= 0:
            self._loop.watch(self._output, self._read)

    def _drain_output(self, most_bytes: int) -> bool:
        """Read at most about `most_bytes` of the available output. Return False when
        there was more."""
        while self._output >= 0 and most_bytes > 0:
            try:
                data = os.read(self._output, READ_BYTES)
            except BlockingIOError:
                return True
            if not data:
                self._close_output()
                return True
            most_bytes -= len(data)
            self.log.write(data)
            self._send_to_listeners(data)
        return self._output < 0

    def _send_to_listeners(self, data: bytes) -> None:
        """Send output to the attached clients. A client that reads too slowly misses
        some of it, and a client that has closed its connection is removed."""
        for listener in list(self.listeners):
            try:
                listener.output.send(data)
            except BlockingIOError:
                continue
            except OSError:
                self._let_go(listener)

    def listen(self, listener: Listener) -> None:
        """Attach a client, which receives the rank's output from now on. The client may
        also end the rank's input."""
        self.listeners.append(listener)
        self._loop.watch(listener.output.fileno(), lambda: self._hear(listener))

    def _hear(self, listener: Listener) -> None:
        try:
            reply = listener.output.recv(64)
        except BlockingIOError:
            return
        except OSError:
            reply = b""
        if END_OF_INPUT in reply:
            self._close_stdin()
        if not reply:
            self._let_go(listener)

    def _let_go(self, listener: Listener, status: int | None = None) -> None:
        self.listeners.remove(listener)
        self._loop.watch(listener.output.fileno(), None)
        listener.close(status)

    def _close_stdin(self) -> None:
        if self.stdin >= 0:
            os.close(self.stdin)
            self.stdin = -1

    def _close_output(self) -> None:
        if self._output >= 0:
            self._loop.watch(self._output, None)
            os.close(self._output)
            self._output = -1
