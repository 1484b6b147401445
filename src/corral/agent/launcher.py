"""The launcher, the init process of the node: it stays loaded, has one thread, and
forks a shim on request.

`python -m corral.agent.launcher NODE_DIR [PID]` starts it in the background and returns
when it is ready; PID is a process inside the node's private root, whose view it joins.
Each request is one byte with a socket over which the shim gets its spec. Shims outlive
the launcher. When their attempt has ended, they can take another one from it (0134).
"""

import fcntl
import gc
import os
import select
import signal
import socket
import sys
from contextlib import suppress
from pathlib import Path
from typing import Final, NoReturn

from corral import __version__
from corral.agent import containment
from corral.agent.private_root import NodeSight, enter_private_root
from corral.agent.processes import myself
from corral.agent.shim.main import be_shim
from corral.agent.shim_pool import IdleShims

SOCKET: Final = "launcher.sock"
PID_FILE: Final = "launcher.pid"
VERSION_FILE: Final = "launcher.version"
LOG: Final = "launcher.log"
START: Final = b"s"
LOG_BYTES: Final = 4 * 1024 * 1024


class Launcher:
    """The launcher's loop, which serves requests until the process is killed. `server`
    and every connection are SOCK_SEQPACKET sockets."""

    def __init__(self, server: socket.socket) -> None:
        self._server = server
        self._connections: dict[int, socket.socket] = {}
        self._poll = select.epoll()
        self._shims = IdleShims(self._poll)
        self._poll.register(server.fileno(), select.EPOLLIN)

    def serve(self) -> None:
        signal.signal(signal.SIGCHLD, lambda number, frame: None)
        woken, wake = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
        self._poll.register(woken, select.EPOLLIN)
        while True:
            for descriptor, _ in self._poll.poll(self._shims.wait_seconds()):
                if descriptor == woken:
                    self._reap_children(woken)
                elif descriptor == self._server.fileno():
                    self._accept_connection()
                elif self._shims.has(descriptor):
                    self._shims.hear(descriptor)
                elif descriptor in self._connections:
                    self._receive_shim_socket(self._connections[descriptor])
            self._shims.expire()

    def _accept_connection(self) -> None:
        with suppress(OSError):
            connection = self._server.accept()[0]
            self._connections[connection.fileno()] = connection
            self._poll.register(connection.fileno(), select.EPOLLIN)

    def _receive_shim_socket(self, connection: socket.socket) -> None:
        try:
            _, received, _, _ = socket.recv_fds(connection, 16, 1, socket.MSG_DONTWAIT)
        except BlockingIOError:
            return
        except OSError:
            received = []
        if not received:
            self._poll.unregister(connection.fileno())
            del self._connections[connection.fileno()]
            connection.close()
            return
        agent = socket.socket(fileno=received[0])

        def be(launcher: socket.socket) -> NoReturn:
            self._let_go()
            be_shim(agent, launcher)

        try:
            self._shims.start(agent, be)
        except OSError as trouble:  # the agent sees the socket close and tries again
            print(f"no shim could be forked: {trouble}", file=sys.stderr, flush=True)
        agent.close()

    def _let_go(self) -> None:
        """Close the descriptors that only the launcher uses; called in a forked shim."""
        descriptor = signal.set_wakeup_fd(-1)
        os.close(descriptor)
        self._poll.close()
        self._server.close()
        for connection in self._connections.values():
            connection.close()
        self._shims.close()

    def _reap_children(self, woken: int) -> None:
        with suppress(BlockingIOError):
            os.read(woken, 4096)
        with suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass


def main(words: list[str]) -> None:
    # a part's launcher has no need of it
    from corral.agent.settings import load_settings

    node_dir = Path(words[0]).absolute()
    beside = int(words[1]) if len(words) > 1 else None
    begin(node_dir, load_settings(node_dir), beside=beside)


def begin(
    node_dir: Path,
    sight: NodeSight,
    *,
    beside: int | None = None,
    first: socket.socket | None = None,
) -> None:
    """Start the launcher as a background process. The calling process exits when the
    launcher is ready.

    `first` is the socket of a shim that starts at once, without a request.
    """
    ready, done = os.pipe()
    if os.fork() != 0:
        os.close(done)
        sys.exit(0 if os.read(ready, 1) else 1)
    os.close(ready)
    os.setsid()
    _log_to(node_dir / LOG)
    server = _open_node_socket(node_dir)
    if server is None:
        os.write(done, b"o")
        return
    (node_dir / VERSION_FILE).write_text(__version__)
    myself().record(node_dir / PID_FILE)
    warning = enter_private_root(node_dir, sight, beside=beside)
    if warning:
        print(warning, file=sys.stderr, flush=True)
    os.chdir("/")
    if first is not None:
        _fork_first(first, server, done)
    else:
        with suppress(OSError):
            containment.probe()  # what it finds out, every shim inherits
    gc.collect()
    gc.freeze()
    gc.disable()
    os.write(done, b"o")
    os.close(done)
    Launcher(server).serve()


def _fork_first(connection: socket.socket, server: socket.socket, done: int) -> None:
    """Fork the first shim at once, so that its ranks start before the launcher finishes
    its own preparation. `done`: the pipe that reports the launcher ready."""
    if os.fork() == 0:
        server.close()
        os.close(done)
        be_shim(connection)
    connection.close()


def _open_node_socket(node_dir: Path) -> socket.socket | None:
    """Return the launcher's listening socket in the node's folder; None if another
    launcher lives. The launcher holds a lock, which ends with its process."""
    lock = os.open(
        node_dir / "launcher.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600
    )
    try:
        # of this process, not of its children
        fcntl.lockf(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(lock)
        return None
    server = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    directory = os.open(node_dir, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        (node_dir / SOCKET).unlink(missing_ok=True)
        server.bind(f"/proc/self/fd/{directory}/{SOCKET}")
        (node_dir / SOCKET).chmod(0o600)
        server.listen(16)
    finally:
        os.close(directory)
    return server


def _log_to(file: Path) -> None:
    with suppress(FileNotFoundError):
        if file.stat().st_size > LOG_BYTES:
            file.rename(file.with_suffix(".log.1"))
    nowhere = os.open(os.devnull, os.O_RDONLY)
    log = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    for target, source in enumerate((nowhere, log, log)):
        os.dup2(source, target)
    os.close(nowhere)
    os.close(log)


if __name__ == "__main__":
    main(sys.argv[1:])
