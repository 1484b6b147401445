"""Programs that a test starts beside itself, and ends."""

import os
import signal
import socket
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

END_SECONDS: Final = 20.0


class Processes:
    """Each with a log of its own in the folder; ended in the reverse of the order of
    starts."""

    def __init__(self, place: Path) -> None:
        self._place = place
        self._running: dict[str, subprocess.Popen[bytes]] = {}

    def start(
        self, name: str, words: Sequence[str], env: Mapping[str, str] | None = None
    ) -> None:
        with (self._place / f"{name}.log").open("ab") as log:
            made = subprocess.Popen(
                words, stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd=self._place,
                start_new_session=True, env=None if env is None else {**os.environ, **env},
            )  # fmt: skip
        self._running[name] = made

    def stop(self) -> None:
        for name in reversed(list(self._running)):
            self.stop_one(name)

    def stop_one(self, name: str) -> None:
        process = self._running.pop(name)
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(END_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def free_ports(many: int) -> list[int]:
    """Ports of loopback that nobody serves on now."""
    sockets = [socket.socket() for _ in range(many)]
    try:
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [one.getsockname()[1] for one in sockets]
    finally:
        for one in sockets:
            one.close()
