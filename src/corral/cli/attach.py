"""The command attach: open a terminal next to the ranks, or write to the standard input
of one rank."""

import contextlib
import os
import shlex
import shutil
import sys
import termios
import threading
import tty
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from corral.cli.error_output import Usage
from corral.cli.head_options import Common, Count
from corral.cli.printing import note
from corral.domain.errors import Unreachable

if TYPE_CHECKING:
    from websockets.sync.client import ClientConnection

DETACH = b"\x1d"  # Ctrl-], as in telnet
PIECE = 65536


def attach(
    job: str,
    /,
    *command: Annotated[str, Parameter(show=True)],
    rank: Count = 0,
    stdin: Annotated[
        bool, Parameter(name="--stdin", negative="", show_default=False)
    ] = False,
    common: Common = Common(),  # noqa: B008 - frozen
) -> int:
    """Open a shell next to a rank, in its cgroup and environment. Ctrl-] leaves it.

    The exit code is that of the shell; with --stdin it is that of the rank, if the rank
    ends while you are attached.

    Args:
        job: Id of a job, or the name of the newest job of this name.
        command: Command to run instead of a shell; write it after --.
        rank: Number of the rank to attach to.
        stdin: Instead of opening a shell, write to the rank's standard input and show
            its new output.
    """
    from websockets.exceptions import WebSocketException

    if stdin and command:
        raise Usage(
            "--stdin cannot be combined with a command",
            hint="remove --stdin to run the command, or remove the command to write to "
            "the rank's standard input",
        )
    size = shutil.get_terminal_size()
    with common.client() as client:
        try:
            with client.attach(
                job,
                rank=rank,
                shell=not stdin,
                rows=size.lines,
                columns=size.columns,
                command=shlex.join(command) if len(command) > 1 else "".join(command),
            ) as terminal:
                if sys.stdin.isatty():
                    leave = (
                        "Ctrl-C detaches, Ctrl-D closes the rank's standard input"
                        if stdin
                        else "Ctrl-] detaches"
                    )
                    note(f"attached to {job}; {leave}")
                with raw_terminal(wanted=not stdin):
                    return pump(terminal)
        except (OSError, WebSocketException) as error:
            raise Unreachable(
                f"no terminal in job {job}: the connection failed or was lost: {error}",
                hint=f"run: corral show {job}",
            ) from None


@contextlib.contextmanager
def raw_terminal(*, wanted: bool) -> Iterator[None]:
    """Put the terminal into raw mode, so that keys are passed on unchanged, if `wanted`
    and standard input is a terminal."""
    if not wanted or not sys.stdin.isatty():
        yield
        return
    saved_attributes = termios.tcgetattr(sys.stdin)
    try:
        tty.setraw(sys.stdin)
        yield
    finally:
        termios.tcsetattr(sys.stdin, termios.TCSADRAIN, saved_attributes)


def pump(terminal: "ClientConnection") -> int:
    """Copy bytes in both directions until the other end closes, or the user leaves.

    Returns: the exit code of a shell or a rank that has ended, else 0. Raises:
    ConnectionClosed.
    """
    from websockets.exceptions import ConnectionClosedError

    from corral.wire.agent_messages import exit_code_of

    keys = threading.Thread(target=_send_keys, args=(terminal,), daemon=True)
    keys.start()
    try:
        for piece in terminal:
            data = piece if isinstance(piece, bytes) else piece.encode()
            sys.stdout.buffer.write(data)
            sys.stdout.buffer.flush()
    except ConnectionClosedError as closed:
        code = exit_code_of(closed.rcvd.code if closed.rcvd else None)
        if code is None:
            raise
        return code
    return 0


def _send_keys(terminal: "ClientConnection") -> None:
    from websockets.exceptions import ConnectionClosed

    with contextlib.suppress(ConnectionClosed, OSError):
        while data := os.read(sys.stdin.fileno(), PIECE):
            bytes_to_send, key_bytes, _ = data.partition(DETACH)
            terminal.send(bytes_to_send)
            if key_bytes and sys.stdin.isatty():
                terminal.close()
                return
        terminal.send(b"")
