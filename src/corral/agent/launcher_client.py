"""The agent's side of the launcher: start it, reach it, hand it the socket of a new shim."""

import asyncio
import os
import socket
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Final

from corral.agent.launcher import PID_FILE, SOCKET, START
from corral.agent.processes import Process
from corral.domain.errors import Trouble

START_SECONDS: Final = 60.0


class NoLauncher(Trouble):
    """The node's launcher cannot be started."""

    code = "no_launcher"


class LauncherClient:
    """One connection, made anew with a new launcher when the old one is gone."""

    def __init__(self, node_dir: Path, beside: Callable[[], int | None]) -> None:
        """`beside` names a living shim of the node, if there is one."""
        self._node_dir = node_dir
        self._beside = beside
        self._connection: socket.socket | None = None
        self._starting = asyncio.Lock()
        self._sending = asyncio.Lock()

    @property
    def pid(self) -> int | None:
        launcher = Process.recorded(self._node_dir / PID_FILE)
        return launcher.pid if launcher else None

    async def start(self) -> None:
        """Connect to the living launcher, else to a new one. Raises: NoLauncher."""
        async with self._starting:
            if self._connection is None:
                self._connection = self._connect() or await self._connect_anew()
                asyncio.get_running_loop().add_reader(self._connection.fileno(), self._lost)

    async def fork(self) -> socket.socket:
        """A socket whose other end a new shim has. Raises: NoLauncher."""
        ours, theirs = socket.socketpair()
        ours.setblocking(False)
        with theirs:
            for _ in range(3):
                await self.start()
                if await self._send(theirs):
                    return ours
        ours.close()
        raise NoLauncher("the launcher ends as soon as it is started", hint="see launcher.log")

    def close(self) -> None:
        if self._connection is not None:
            asyncio.get_running_loop().remove_reader(self._connection.fileno())
            self._connection.close()
            self._connection = None

    def _lost(self) -> None:
        """A launcher says nothing: what can be read is its end."""
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

    def _connect(self) -> socket.socket | None:
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
        words = [sys.executable, "-P", "-m", "corral.agent.launcher", str(self._node_dir)]
        beside = self._beside()
        helper = await asyncio.create_subprocess_exec(
            *words, *([str(beside)] if beside else []), stdin=asyncio.subprocess.DEVNULL
        )
        try:
            async with asyncio.timeout(START_SECONDS):
                code = await helper.wait()
        except TimeoutError:
            helper.kill()
            await helper.wait()
            code = -9
        connection = self._connect()
        if connection is None:
            raise NoLauncher(
                f"the launcher does not start: exit code {code}",
                hint=f"run: tail {self._node_dir / 'launcher.log'}",
            )
        return connection
