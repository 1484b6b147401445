"""`corral` for the shell blocks of a page: `python -IS forwarded.py FD PROGRAM WORDS`
passes a command on to the process of `tests.scenarios.warm` behind the socket FD.

It starts in 15 ms, and the command has this process's folder, environment and streams.
Where FD was not inherited (the processes of a job), PROGRAM itself runs.
"""

import json
import os
import socket
import sys


def main(descriptor: int, program: str, words: list[str]) -> int:
    """Return the exit code of the command."""
    try:
        orders = socket.socket(fileno=descriptor)
        is_orders = orders.type == socket.SOCK_SEQPACKET
    except OSError:
        is_orders = False
    if not is_orders:
        os.execv(program, [program, *words])
    order = {"words": words, "env": dict(os.environ), "cwd": os.getcwd()}
    reading, writing = os.pipe()
    packet = json.dumps(order).encode()
    socket.send_fds(orders, [packet], [0, 1, 2, writing])
    os.close(writing)
    with open(reading, encoding="ascii") as answer:
        _pid, code = answer.read().split()
    return int(code) if int(code) >= 0 else 128 - int(code)


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), sys.argv[2], sys.argv[3:]))
