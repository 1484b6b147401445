"""A process with torch already loaded that forks ranks: each costs milliseconds, not
seconds.

Reads one JSON object a line: {"env", "log", "job"}; answers {"started": pid}, and
{"ended": pid, "status": wait status} when one has ended. It has no thread of its own,
so forking it is safe. A rank ends without the end of the interpreter, which costs more
than all else, unless INTERPRETER_ENDS is in its "env".
"""

import importlib
import json
import os
import select
import signal
import sys
import traceback
from typing import Any


def run_child(order: dict[str, Any]) -> None:
    code = 1
    try:
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        os.environ.update(order["env"])
        log = os.open(order["log"], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.dup2(log, 1)
        os.dup2(log, 2)
        module, name = order["job"].split(":")
        getattr(importlib.import_module(module), name)()
        code = 0
    except SystemExit as end:
        code = int(end.code or 0)
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        if "INTERPRETER_ENDS" in order["env"]:
            sys.exit(code)
        os._exit(code)


def say(message: dict[str, int]) -> None:
    os.write(1, json.dumps(message).encode() + b"\n")


def reap() -> None:
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return
        if pid == 0:
            return
        say({"ended": pid, "status": status})


def serve() -> None:
    wake_read, wake_write = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    signal.set_wakeup_fd(wake_write, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    waiting = b""
    while True:
        ready, _, _ = select.select([0, wake_read], [], [])
        if wake_read in ready:
            os.read(wake_read, 4096)
            reap()
        if 0 in ready:
            data = os.read(0, 65536)
            if not data:
                return
            *lines, waiting = (waiting + data).split(b"\n")
            for line in lines:
                pid = os.fork()
                if pid == 0:
                    run_child(json.loads(line))
                say({"started": pid})


if __name__ == "__main__":
    import torch
    import torch._dynamo
    import torch.distributed.checkpoint
    import torch.distributed.fsdp

    import corral.train.run  # noqa: F401

    torch.set_num_threads(1)
    say({"started": 0})
    serve()
