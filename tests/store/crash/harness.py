"""Runs the child under strace: killed at, or failed at, its N-th call, or only written
down."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.patience import PATIENCE_SECONDS
from tests.store.crash.check import Ack, read_acks

ROOT = Path(__file__).parents[3]
STRACE = shutil.which("strace")
WRITING = "pwrite64,write,fsync,fdatasync,ftruncate,rename,renameat,renameat2,unlink"


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """What became of one child: its exit code (negative: the signal), and what it had
    said."""

    code: int
    acks: list[Ack]

    @property
    def finished(self) -> bool:
        return self.code == 0 and self.acks[-1]["ack"] == "end"


class Nursery:
    """Children of one warm process."""

    def __init__(self, process: "subprocess.Popen[str]") -> None:
        self._process = process

    def run(
        self,
        path: Path,
        watch: list[str],
        *,
        rounds: int = 4,
        first: int = 1,
        close: bool = True,
        kill_after_seconds: float | None = None,
    ) -> Ended:
        """One child's life. `watch` are strace's arguments; without any it is not
        watched."""
        acks = path.with_name("acks")
        acks.unlink(missing_ok=True)
        order = dict(
            path=str(path), acks=str(acks), rounds=rounds, first=first, close=close
        )
        pid = int(self._ask(json.dumps(order)))
        watcher = _attach(pid, watch) if watch else None
        os.kill(pid, signal.SIGCONT)
        if kill_after_seconds is not None:
            time.sleep(kill_after_seconds)
            # still ours: the nursery waits for it until we read
            os.kill(pid, signal.SIGKILL)
        code = int(self._read())
        if watcher is not None:
            watcher.communicate(timeout=PATIENCE_SECONDS)
        return Ended(
            code=code, acks=read_acks(acks.read_text() if acks.exists() else "")
        )

    def _ask(self, line: str) -> str:
        assert self._process.stdin is not None
        self._process.stdin.write(line + "\n")
        self._process.stdin.flush()
        return self._read()

    def _read(self) -> str:
        assert self._process.stdout is not None
        answer = self._process.stdout.readline()
        assert answer, "the nursery has ended"
        return answer


def _attach(pid: int, watch: list[str]) -> "subprocess.Popen[str]":
    assert STRACE is not None
    command = [STRACE, "-f", "-p", str(pid), *watch]
    watcher = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    assert watcher.stderr is not None
    said = watcher.stderr.readline()
    assert "attached" in said, said
    return watcher


@contextmanager
def nursery() -> Iterator[Nursery]:
    command = [sys.executable, "-m", "tests.store.crash.nursery"]
    environment = {**os.environ, "PYTHONPATH": f"{ROOT / 'src'}:{ROOT}"}
    with subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=ROOT,
        env=environment,
    ) as process:
        try:
            yield Nursery(process)
        finally:
            assert process.stdin is not None
            process.stdin.close()
            process.wait(timeout=PATIENCE_SECONDS)


def killed_at(call: int) -> list[str]:
    """SIGKILL as the thread's so-manieth writing call begins."""
    return [
        "-o",
        "/dev/null",
        "-e",
        f"trace={WRITING}",
        *_inject(WRITING, f"signal=KILL:when={call}"),
    ]


def failed_at(calls: str, error: str, when: str) -> list[str]:
    """These calls answer with the error, `when` it is."""
    return [
        "-o",
        "/dev/null",
        "-e",
        f"trace={calls}",
        *_inject(calls, f"error={error}:when={when}"),
    ]


def _inject(calls: str, what: str) -> list[str]:
    return ["-e", f"inject={calls}:{what}"]
