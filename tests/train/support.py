"""Gangs of real ranks, and a shim to talk to, for the tests of train."""

import hashlib
import json
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from itertools import cycle
from pathlib import Path
from typing import Any, Final

from corral.agent.port_range import PortBlock
from tests.patience import PATIENCE_SECONDS

HERE: Final = Path(__file__).parent
ROOT: Final = HERE.parent.parent


def wait_for(
    what: Callable[[], Any], why: str, seconds: float = PATIENCE_SECONDS
) -> Any:
    """Poll until it is true, and answer with it."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        if found := what():
            return found
        time.sleep(0.005)
    raise AssertionError(f"not within {seconds} s: {why}")


class Zygote:
    """Forks ranks (see zygote.py) and knows how each has ended.

    `folder` is its own. The ports that gangs meet at belong to this process until it
    ends.
    """

    def __init__(self, folder: Path) -> None:
        self._block = PortBlock(folder / "ports")
        self._ports = cycle(self._block.ports)
        env = os.environ | {
            "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT), str(HERE)]),
            "OMP_NUM_THREADS": "1",
        }
        self._process = subprocess.Popen(
            [sys.executable, str(HERE / "zygote.py")],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=env,
        )
        self.ended: dict[int, int] = {}
        self._started: list[int] = []
        self._running: set[int] = set()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        wait_for(lambda: self._started, "torch loaded")
        self._started.clear()

    def _read(self) -> None:
        assert self._process.stdout
        for line in self._process.stdout:
            message = json.loads(line)
            if "ended" in message:
                self.ended[message["ended"]] = os.waitstatus_to_exitcode(
                    message["status"]
                )
            else:
                self._started.append(message["started"])

    def fork(self, job: str, env: dict[str, str], log: Path) -> int:
        assert self._process.stdin
        count = len(self._started)
        order = {"env": env, "log": str(log), "job": job}
        self._process.stdin.write(json.dumps(order).encode() + b"\n")
        self._process.stdin.flush()
        wait_for(lambda: len(self._started) > count, "a rank was forked")
        self._running.add(self._started[-1])
        return self._started[-1]

    def port(self) -> int:
        """One that nothing listens on, another each time."""
        free = self._block.free()
        return next(port for port in self._ports if port in free)

    def close(self) -> None:
        self._block.close()
        for pid in self._running - self.ended.keys():
            with suppress(ProcessLookupError):
                os.kill(pid, 9)
        assert self._process.stdin
        self._process.stdin.close()
        self._process.wait(PATIENCE_SECONDS)
        self._reader.join(PATIENCE_SECONDS)
        assert self._process.stdout
        self._process.stdout.close()


@dataclass
class Gang:
    """The running ranks of one attempt."""

    zygote: Zygote
    pids: list[int]
    out: Path

    def kill(self, number: int = 9, ranks: Sequence[int] | None = None) -> None:
        for rank in range(len(self.pids)) if ranks is None else ranks:
            if self.pids[rank] not in self.zygote.ended:
                os.kill(self.pids[rank], number)

    def wait(self) -> list[int]:
        """Exit codes by rank; minus the signal for one that was killed."""
        wait_for(
            lambda: self.zygote.ended.keys() >= set(self.pids), f"the end: {self.log()}"
        )
        return [self.zygote.ended[pid] for pid in self.pids]

    def log(self) -> str:
        return "\n".join(path.read_text() for path in sorted(self.out.glob("log-*")))


@dataclass
class World:
    """One job: attempt after attempt over the same directory of saves."""

    zygote: Zygote
    out: Path
    env: dict[str, str] = field(default_factory=dict)

    def launch(
        self,
        attempt: int,
        ranks: int = 2,
        *,
        job: str = "jobs:train_small",
        resume: Sequence[dict[str, Any]] = (),
        interval: str = "0.05",
        sockets: Sequence[str] = (),
        memories: Sequence[Path] = (),
        env: dict[str, str] | None = None,
        **small: Any,
    ) -> Gang:
        port = self.zygote.port()
        pids = []
        for rank in range(ranks):
            own = {
                "MASTER_ADDR": "127.0.0.1",
                "MASTER_PORT": str(port),
                "RANK": str(rank),
                "LOCAL_RANK": str(rank),
                "WORLD_SIZE": str(ranks),
                "CORRAL_JOB_ID": "j1",
                "CORRAL_ATTEMPT": str(attempt),
                "CORRAL_CHECKPOINT_PATH": str(self.saves),
                "CORRAL_CHECKPOINT_INTERVAL": interval,
                "CORRAL_RESUME": json.dumps(list(resume)),
                "SMALL": json.dumps({"out": str(self.out), "steps": 40} | small),
            }
            if sockets:
                own["CORRAL_SOCKET"] = sockets[rank % len(sockets)]
            if memories:  # those of several nodes, the first ranks on the first
                own["CORRAL_MEMORY_PATH"] = str(memories[rank * len(memories) // ranks])
            log = self.out / f"log-{attempt}-{rank}"
            pids.append(self.zygote.fork(job, own | self.env | (env or {}), log))
        return Gang(self.zygote, pids, self.out)

    @property
    def saves(self) -> Path:
        return self.out / "saves"

    def complete(self) -> list[dict[str, Any]]:
        """Every complete save as CORRAL_RESUME tells of them, the newest first."""
        found = []
        for path in self.saves.glob("attempt-*/step-*"):
            with suppress(FileNotFoundError, ValueError):
                found.append(
                    {
                        "attempt": int(path.parent.name.removeprefix("attempt-")),
                        "step": int(path.name.removeprefix("step-")),
                        "path": str(path),
                        "manifest_sha256": sha256(path / "manifest.json"),
                    }
                )
        return sorted(
            found, key=lambda one: (one["attempt"], one["step"]), reverse=True
        )

    def result(self) -> dict[str, Any]:
        found = json.loads((self.out / "result.json").read_text())
        assert isinstance(found, dict)
        return found

    def is_done(self) -> bool:
        return (self.out / "result.json").exists()

    def resumed_at(self) -> int:
        """The step that the newest attempt began at."""
        return int((self.out / "resumed").read_text().splitlines()[-1].split()[0])

    def samples(self) -> dict[int, dict[int, list[int]]]:
        """Step -> rank -> indices, the last time that the step was done."""
        found: dict[int, dict[int, list[int]]] = {}
        for path in self.out.glob("samples-*"):
            for line in path.read_text().splitlines():
                step, *indices = map(int, line.split())
                found.setdefault(step, {})[int(path.name.split("-")[1])] = indices
        return found


def sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


class FakeShim:
    """The other end of CORRAL_SOCKET: keeps what ranks say, tells them what a test
    wants."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.messages: list[dict[str, Any]] = []
        self.lines: list[socket.socket] = []
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        directory = os.open(path.parent, os.O_PATH)
        try:
            self._listener.bind(f"/proc/self/fd/{directory}/{path.name}")
        finally:
            os.close(directory)
        self._listener.listen(64)
        self._threads = [threading.Thread(target=self._accept, daemon=True)]
        self._threads[0].start()

    def of(self, kind: str) -> list[dict[str, Any]]:
        return [one for one in self.messages if one["type"] == kind]

    def tell(self, message: dict[str, Any]) -> None:
        for line in list(self.lines):
            with suppress(OSError):
                line.sendall(json.dumps(message).encode() + b"\n")

    def _accept(self) -> None:
        while True:
            try:
                line, _ = self._listener.accept()
            except OSError:
                return
            self.lines.append(line)
            thread = threading.Thread(target=self._read, args=(line,), daemon=True)
            self._threads.append(thread)
            thread.start()

    def _read(self, line: socket.socket) -> None:
        with suppress(OSError), line.makefile("rb") as file:
            for text in file:
                self.messages.append(json.loads(text))

    def close(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for line in self.lines:
            with suppress(OSError):
                line.shutdown(socket.SHUT_RDWR)
            line.close()
        for thread in self._threads:
            thread.join(PATIENCE_SECONDS)
        self.path.unlink(missing_ok=True)


@contextmanager
def shim_at(path: Path) -> Iterator[FakeShim]:
    shim = FakeShim(path)
    try:
        yield shim
    finally:
        shim.close()
