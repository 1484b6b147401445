"""A warm process that forks a working child per order, so that a crash point costs no
import.

Orders come as JSON lines on standard input: {path, acks, rounds, first, close}. Each is
answered with the child's pid once it is stopped at its start, and with how it ended.
"""

import asyncio
import json
import os
import signal
import sys
from pathlib import Path

from tests.store.crash.work import work


def child(order: dict[str, object]) -> None:
    os.kill(os.getpid(), signal.SIGSTOP)  # until it is watched
    handle = os.open(str(order["acks"]), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    rounds, first = int(str(order["rounds"])), int(str(order["first"]))
    path, close = Path(str(order["path"])), bool(order["close"])
    asyncio.run(work(path, handle, rounds, first=first, close=close))


def main() -> None:
    for line in sys.stdin:
        pid = os.fork()
        if pid == 0:
            status = 1
            try:
                child(json.loads(line))
                status = 0
            finally:
                os._exit(status)
        os.waitpid(pid, os.WUNTRACED)
        print(pid, flush=True)
        _, ended = os.waitpid(pid, 0)
        print(os.waitstatus_to_exitcode(ended), flush=True)


if __name__ == "__main__":
    main()
