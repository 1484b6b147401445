"""The agent's side of the launcher: start the launcher, connect to it, and send it the
socket of a new shim."""

import asyncio
import os
import signal
import socket
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Final

from corral import __version__
from corral.agent.launcher import PID_FILE, SOCKET, START, VERSION_FILE
from corral.agent.processes import LocalProcess
from corral.domain.errors import Trouble

START_SECONDS: Final = 60.0
END_SECONDS: Final = 5.0


class NoLauncher(Trouble):
    """The node's launcher cannot be started."""

    code = "no_launcher"


class LauncherClient:
    """Connection to the launcher. When the launcher has exited, another one is started
    and connected.

    A launcher of another version is replaced as soon as the node has no living shim.
    Otherwise new shims would run the code from before an upgrade.
    """

    def __init__(self, node_dir: Path, find_shim: Callable[[], int | None]) -> None:
        """`find_shim` returns the pid of a living shim of the node, if one exists."""
        self._node_dir = node_dir
        self._find_shim = find_shim
        self._connection: socket.socket | None = None
        self._is_outdated = version_of(node_dir) not in ("", __version__)
        self._starting = asyncio.Lock()
        self._sending = asyncio.Lock()

    @property
    def pid(self) -> int | None:
        launcher = LocalProcess.recorded(self._node_dir / PID_FILE)
        return launcher.pid if launcher else None

    async def start(self) -> None:
        """Connect to the living launcher, or start a new one.

        Raises: NoLauncher when none can be started.
        """
        async with self._starting:
            if self._is_outdated and self._find_shim() is None:
                await self._end_outdated()
            if self._connection is None:
                self._connection = (
                    self._connect_launcher() or await self._connect_anew()
                )
                asyncio.get_running_loop().add_reader(
                    self._connection.fileno(), self._on_launcher_lost
                )

    async def fork(self) -> socket.socket:
        """Fork a new shim, and return the agent's end of the socket to it.

        Raises: NoLauncher when no launcher can be started.
        """
        ours, child_socket = socket.socketpair()
        ours.setblocking(False)
        with child_socket:
            for _ in range(3):
                await self.start()
                if await self._send(child_socket):
                    return ours
        ours.close()
        raise NoLauncher(
            "the node's launcher ends as soon as it is started",
            hint=f"run: tail {self._node_dir / 'launcher.log'}",
        )

    def close(self) -> None:
        if self._connection is not None:
            asyncio.get_running_loop().remove_reader(self._connection.fileno())
            self._connection.close()
            self._connection = None

    async def _end_outdated(self) -> None:
        """Kill a launcher of another version, and wait until it has ended."""
        self.close()
        launcher = LocalProcess.recorded(self._node_dir / PID_FILE)
        give_up_at = asyncio.get_running_loop().time() + END_SECONDS
        while launcher is not None and launcher.lives:
            if asyncio.get_running_loop().time() > give_up_at:
                return
            launcher.signal(signal.SIGKILL)
            await asyncio.sleep(0.002)
        self._is_outdated = False

    def _on_launcher_lost(self) -> None:
        """Close the connection: a launcher never sends data, so a readable socket means
        that the launcher has ended."""
        self.close()

    async def _send(self, theirs: socket.socket) -> bool:
        async with self._sending:
            while self._connection is not None:
                try:
                    socket.send_fds(self._connection, [START], [theirs.fileno()])
                    return True
                except BlockingIOError:
                    await asyncio.sleep(0.001)
                except OSError:
                    self.close()
            return False

    def _connect_launcher(self) -> socket.socket | None:
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        directory = os.open(self._node_dir, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            connection.connect(f"/proc/self/fd/{directory}/{SOCKET}")
        except OSError:
            connection.close()
            return None
        finally:
            os.close(directory)
        connection.setblocking(False)
        return connection

    async def _connect_anew(self) -> socket.socket:
        launcher_command = [
            sys.executable,
            "-P",
            "-m",
            "corral.agent.launcher",
            str(self._node_dir),
        ]
        shim = self._find_shim()
        helper = await asyncio.create_subprocess_exec(
            *launcher_command,
            *([str(shim)] if shim else []),
            stdin=asyncio.subprocess.DEVNULL,
        )
        try:
            async with asyncio.timeout(START_SECONDS):
                code = await helper.wait()
        except TimeoutError:
            helper.kill()
            await helper.wait()
            code = -9
        connection = self._connect_launcher()
        if connection is None:
            raise NoLauncher(
                f"the node's launcher does not start: exit code {code}",
                hint=f"run: tail {self._node_dir / 'launcher.log'}",
            )
        self._is_outdated = False
        return connection


def version_of(node_dir: Path) -> str:
    """Return the version of the node's launcher; "" where none was started."""
    try:
        return (node_dir / VERSION_FILE).read_text()
    except OSError:
        return "unknown" if (node_dir / PID_FILE).exists() else ""
