"""The command line from a process that has loaded it already: a command costs its own
work, and not the start of a Python and 200 modules before it.

`python warm.py FD` forks at each order that comes over the socket FD, {"words", "env",
"cwd"} and four descriptors: standard input, output and error, and a pipe on which it
tells the command's pid and, when it has ended, its exit code. Nothing of one command is
left for the next. What starts here is a copy of a process of one thread: to fork it is
safe.
"""

import atexit
import gc
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

MOST_BYTES = 1 << 20  # of an order
LOADED = (
    "corral.cli.main",
    "corral.boot.start_head",
    "corral.cli.head_options",
    "corral.cli.printing",
    "corral.client.client",
    "corral.wire.api",
    "corral.wire.queue_answers",
    "corral.wire.yaml_document",
    "corral.wire.reports",
    "httpx2",
    "rich.console",
    "rich.table",
)


def serve(orders: socket.socket) -> None:
    # who minds a command is waited for by nobody
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    while True:
        said, descriptors, *_ = socket.recv_fds(orders, MOST_BYTES, 4)
        if not said:
            return
        if os.fork() == 0:
            orders.close()
            mind(json.loads(said), descriptors)
        for one in descriptors:
            os.close(one)


def mind(order: dict[str, Any], descriptors: list[int]) -> None:
    """Run it in a process of its own, and tell how that has ended."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    *streams, told = descriptors
    pid = os.fork()
    if pid == 0:
        os.close(told)
        command(order, streams)
    os.write(told, f"{pid}\n".encode())
    _, status = os.waitpid(pid, 0)
    with suppress(BrokenPipeError):  # nobody waits for it any more
        os.write(told, f"{os.waitstatus_to_exitcode(status)}\n".encode())
    os._exit(0)


def command(order: dict[str, Any], streams: list[int]) -> None:
    """As `python -c 'from corral.cli.main import main; main()' WORDS` does from here
    on."""
    from corral.cli.main import main

    for number, one in enumerate(streams):
        os.dup2(one, number)
        os.close(one)
    os.environ.clear()
    os.environ.update(order["env"])
    time.tzset()
    os.chdir(order["cwd"])
    sys.argv = ["-c", *order["words"]]
    code = 1
    try:
        main()
        code = 0
    except SystemExit as end:
        code = int(end.code or 0)
    except BaseException:
        sys.excepthook(*sys.exc_info())
    finally:
        with suppress(OSError):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(code)


class Warm:
    """The process that forks, and the way to it."""

    def __init__(self) -> None:
        self._orders, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        path = os.pathsep.join(one for one in sys.path if one)
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-P", __file__, str(theirs.fileno())],
                pass_fds=[theirs.fileno()],
                env={**os.environ, "PYTHONPATH": path},
                stdin=subprocess.DEVNULL,
            )

    def run(
        self,
        words: list[str],
        env: Mapping[str, str],
        cwd: Path,
        stdin: str,
        seconds: float,
    ) -> "subprocess.CompletedProcess[str]":
        """As `subprocess.run` of a command line. Raises: TimeoutExpired, when it was
        killed."""
        order = {"words": words, "env": dict(env), "cwd": str(cwd)}
        with tempfile.TemporaryFile() as said, tempfile.TemporaryFile() as wrong:
            code = self._code(order, stdin, (said.fileno(), wrong.fileno()), seconds)
            said.seek(0)
            wrong.seek(0)
            return subprocess.CompletedProcess(
                words, code, said.read().decode(), wrong.read().decode()
            )

    def _code(
        self,
        order: dict[str, Any],
        stdin: str,
        streams: tuple[int, int],
        seconds: float,
    ) -> int:
        began = time.monotonic()
        (given, giving), (heard, telling) = os.pipe(), os.pipe()
        with open(giving, "w") as words, open(heard, encoding="ascii") as told:
            packet = json.dumps(order).encode()
            socket.send_fds(self._orders, [packet], [given, *streams, telling])
            os.close(given)
            os.close(telling)
            pid = int(told.readline())
            late = threading.Timer(seconds, os.kill, (pid, signal.SIGKILL))
            late.start()
            try:
                with suppress(BrokenPipeError):  # it did not care to read it
                    words.write(stdin)
                    words.close()
                code = int(told.readline())
            finally:
                late.cancel()
        if code == -signal.SIGKILL and time.monotonic() - began >= seconds:
            raise subprocess.TimeoutExpired(order["words"], seconds)
        return code

    def fileno(self) -> int:
        """The socket for orders: processes that inherit it may order as well."""
        return self._orders.fileno()

    def close(self) -> None:
        self._orders.close()
        self._process.wait()


@cache
def warm() -> Warm:
    """That of this process."""
    made = Warm()
    atexit.register(made.close)
    return made


if __name__ == "__main__":
    for module in LOADED:
        import_module(module)
    gc.collect()
    gc.freeze()  # else each command's first collection would copy all of it
    serve(socket.socket(fileno=int(sys.argv[1])))
