"""Attachment of a user to an attempt: a shell next to the ranks, or a rank's own input
and output.

The shim passes the descriptor for the input over the connection; for a shell it is the
whole terminal. The connection reports the end of a shell. A second descriptor reports
the end of a rank.
"""

import os
import pty
import socket
from collections.abc import Callable
from contextlib import suppress
from typing import Final

from corral.agent.shim.rank_process import Listener, Rank
from corral.agent.shim.spawn import Child, spawn, window

ANSWER: Final = b"!"  # comes with the descriptor; anything else is a refusal in words


def hand_over(connection: socket.socket, *descriptors: int) -> None:
    connection.setblocking(True)
    socket.send_fds(connection, [ANSWER], descriptors)


def refuse(connection: socket.socket, why: str) -> None:
    with connection, suppress(OSError):
        connection.setblocking(True)
        connection.sendall(why.encode())


def listen(rank: Rank, connection: socket.socket) -> None:
    """Attach a client to the rank: send the descriptor for the rank's input and the
    descriptor that reports the rank's end.

    From now on the rank's output also goes to the connection.
    """
    if rank.stdin < 0 or rank.is_over:
        state_text = (
            "has ended" if rank.is_over else "reads no input: its input was closed"
        )
        refuse(connection, f"rank {rank.number} {state_text}")
        return
    ours, child_socket = socket.socketpair()
    with child_socket:
        try:
            hand_over(connection, rank.stdin, child_socket.fileno())
        except OSError:
            connection.close()
            ours.close()
            return
    connection.setblocking(False)
    rank.listen(Listener(output=connection, end=ours))


def open_shell(
    child: Callable[[tuple[int, int, int]], Child],
    connection: socket.socket,
    rows: int,
    columns: int,
) -> int:
    """Start a shell on a new terminal, and hand the terminal over to the client. Return
    the shell's process id, to be reaped.

    The connection stays open to report the end of the shell.

    Raises: OSError when no terminal or process can be created.
    """
    ours, terminal_side = pty.openpty()
    try:
        window(terminal_side, rows, columns)
        spawned = spawn(child((terminal_side, terminal_side, terminal_side)))
        os.close(spawned.failure)
        hand_over(connection, ours)
    except OSError:
        connection.close()
        raise
    finally:
        os.close(ours)
        os.close(terminal_side)
    return spawned.pid
