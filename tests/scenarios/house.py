"""A whole cluster of real processes for tests: the command `corral`, its head, agents
and jobs."""

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import corral
from corral.boot.settings import ClusterDir
from corral.boot.start_head import head_runs, node_processes
from corral.engines.local.processes import LocalProcess
from corral.wire import api
from tests.patience import PATIENCE_SECONDS
from tests.scenarios.warm import warm

CORRAL = [sys.executable, "-P", "-c", "from corral.cli.main import main; main()"]
POLL_SECONDS = 0.02
# who waits for long asks less often: others need the machine meanwhile
LONGEST_POLL_SECONDS = 0.25


def until(
    done: Callable[[], object], what: str, seconds: float = PATIENCE_SECONDS
) -> float:
    """Wait for it; the seconds that it took."""
    began = time.monotonic()
    while not done():
        waited = time.monotonic() - began
        assert waited < seconds, f"not within {seconds:g} s: {what}"
        time.sleep(min(LONGEST_POLL_SECONDS, POLL_SECONDS + waited / 20.0))
    return time.monotonic() - began


def wait_in_shell(path: Path) -> str:
    """A shell's words that wait for a file."""
    return f"while [ ! -e {path} ]; do sleep 0.2; done"


@dataclass(frozen=True, slots=True)
class House:
    """One cluster in a directory of its own."""

    root: Path

    @property
    def place(self) -> ClusterDir:
        return ClusterDir(self.root)

    @property
    def shared(self) -> Path:
        return self.root / "shared"

    def client(self) -> "corral.Client":
        return corral.Client(dir=self.root)

    def corral(
        self, *words: str, stdin: str = "", seconds: float = PATIENCE_SECONDS
    ) -> "subprocess.CompletedProcess[str]":
        """The command line, as a script would use it. What may start a head is a
        process from its beginning; others come from one that has loaded them
        already."""
        plain = {name: one for name, one in os.environ.items() if "CORRAL" not in name}
        env = {**plain, "CORRAL_DIR": str(self.root), "COLUMNS": "80", "TZ": "UTC"}
        if words[0] != "up" and self.place.head_json.exists():
            return warm().run(list(words), env, self.root.parent, stdin, seconds)
        return subprocess.run(
            [*CORRAL, *words],
            env=env,
            cwd=self.root.parent,
            input=stdin,
            capture_output=True,
            text=True,
            timeout=seconds,
        )

    def ok(self, *words: str, stdin: str = "") -> str:
        done = self.corral(*words, stdin=stdin)
        assert done.returncode == 0, (
            f"{words}: {done.returncode}\n{done.stdout}{done.stderr}"
        )
        return done.stdout

    def answer(self, *words: str) -> Any:
        return json.loads(self.ok(*words, "--json"))

    def apply(self, queues: str) -> str:
        """Set the queues of this file's text; what was said to it."""
        file = self.root.parent / "queues.yaml"
        file.write_text(queues)
        return self.ok("apply", "-f", str(file), "-y")

    def up(self, *words: str) -> None:
        self.ok("up", *words)

    def submit(self, name: str, run: str, **more: Any) -> str:
        """The job's id."""
        with self.client() as client:
            return client.submit({"name": name, "run": run, **more})[0].id

    def job(self, id: str) -> api.JobDetail:
        with self.client() as client:
            return client.job(id)

    def until_state(
        self, id: str, *states: str, seconds: float = PATIENCE_SECONDS
    ) -> float:
        return until(lambda: self.job(id).state in states, f"{id} is {states}", seconds)

    def until_over(self, id: str, seconds: float = PATIENCE_SECONDS) -> api.JobDetail:
        until(lambda: self.job(id).is_over, f"{id} is over: {self.root}", seconds)
        return self.job(id)

    def until_there(self, path: Path) -> None:
        until(path.exists, f"{path} is there")

    def logs(self, id: str, **asked: Any) -> str:
        """All of it: what was written last may still be on its way when the job is
        over."""
        with self.client() as client:
            return "".join(
                piece.data for piece in client.logs(id, follow=True, **asked)
            )

    def head_pid(self) -> int:
        return int(json.loads(self.place.head_json.read_text())["pid"])

    def kill_head(self) -> None:
        os.kill(self.head_pid(), signal.SIGKILL)
        until(lambda: not head_runs(self.place), "the head is gone")

    def agent_or_none(self, node: str) -> LocalProcess | None:
        return LocalProcess.recorded(self.root / "nodes" / node / "agent.pid")

    def agent(self, node: str) -> LocalProcess:
        found = self.agent_or_none(node)
        assert found is not None, f"node {node} has no agent"
        return found

    def node(self, name: str) -> api.NodeDetail:
        with self.client() as client:
            return client.node(name)

    def nodes(self) -> dict[str, str]:
        """How alive each known node is."""
        with self.client() as client:
            return {node.id: node.liveness for node in client.nodes()}

    def jobs(self) -> list[api.JobView]:
        """All of them, those that are over as well."""
        with self.client() as client:
            return client.jobs(everything=True)

    def kill_node(self, node: str) -> None:
        """The node loses its power."""
        command = [sys.executable, "-P", "-m", "corral.agent", "--kill"]
        subprocess.run([*command, str(self.root / "nodes" / node)], check=True)

    def processes(self, below: str = "") -> list[int]:
        """Living processes that have to do with this cluster (or a part of its
        directory), as their arguments or their environment say."""
        mark = str(self.root / below).encode()
        everything = (int(name) for name in os.listdir("/proc") if name.isdecimal())
        others = (pid for pid in everything if pid != os.getpid())
        return [pid for pid in others if mark in _about(pid) and LocalProcess.find(pid)]

    def ranks(self, id: str, attempt: int) -> list[int]:
        """Living processes of one attempt, as their environment says: its ranks, and
        what they have left behind."""
        marks = (
            f"CORRAL_JOB_ID={id}\0".encode(),
            f"CORRAL_ATTEMPT={attempt}\0".encode(),
        )
        return [
            pid
            for pid in self.processes()
            if all(mark in _about(pid) for mark in marks)
        ]


def _about(pid: int) -> bytes:
    try:
        return b"".join(
            Path(f"/proc/{pid}/{name}").read_bytes() for name in ("cmdline", "environ")
        )
    except OSError:
        return b""


@contextmanager
def house(*words: str) -> Iterator[House]:
    """A cluster, up when words for `corral up` are given; nothing of it is left
    afterwards."""
    folder = Path(tempfile.mkdtemp(prefix="corral-t-"))
    made = House(folder / "c")
    try:
        if words:
            made.up(*words)
        yield made
    finally:
        stop_all(made)
        shutil.rmtree(folder, ignore_errors=True)


def stop_all(made: House) -> None:
    """Bring a cluster down, if it is up, and end whatever is left of it."""
    if head_runs(made.place) or node_processes(made.place):
        made.corral("down", "--jobs", "stop", "-y", seconds=150)
    for pid in made.processes():
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
