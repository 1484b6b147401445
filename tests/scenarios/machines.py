"""A cluster over several hosts for tests: real heads and agents, each in a network of
its own."""

import json
import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import corral
from corral.wire import api
from tests.hosts import Host, Hosts, hosts
from tests.patience import PATIENCE_SECONDS
from tests.scenarios.house import CORRAL, House, until

T = TypeVar("T")


@dataclass(slots=True)
class Machine:
    """A host with a directory of Corral's."""

    host: Host
    root: Path
    env: dict[str, str] = field(default_factory=dict)

    def environment(self) -> Mapping[str, str]:
        plain = {name: one for name, one in os.environ.items() if "CORRAL" not in name}
        own = {"CORRAL_DIR": str(self.root), "COLUMNS": "100", "TZ": "UTC"}
        return {**plain, **own, **self.env}

    def corral(self, *words: str) -> "subprocess.CompletedProcess[str]":
        """The command line, on this host."""
        return self.host.run(
            [*CORRAL, *words],
            env=self.environment(),
            timeout=PATIENCE_SECONDS,
            stdin=subprocess.DEVNULL,
        )

    def ok(self, *words: str) -> str:
        done = self.corral(*words)
        assert done.returncode == 0, (
            f"{words}: {done.returncode}\n{done.stdout}{done.stderr}"
        )
        return done.stdout

    def answer(self, *words: str) -> Any:
        return json.loads(self.ok(*words, "--json"))

    def refused(self, *words: str) -> tuple[str, str]:
        """(code, hint)"""
        done = self.corral(*words, "--json")
        assert done.returncode == 3, (
            f"{words}: {done.returncode}\n{done.stdout}{done.stderr}"
        )
        error = json.loads(done.stderr)["error"]
        return error["code"], error["hint"]

    def join(self, line: str, *words: str) -> str:
        """Join by the line of the head, under the host's name. The tests' jobs may be
        root's."""
        own = ("--name", self.host.name, "--policy", "root=allow")
        return self.ok(*line.split()[1:], *own, *words)


@dataclass(slots=True)
class Machines:
    """The machine `head` has one; the others have joined it where the test said so."""

    hosts: Hosts
    by_name: dict[str, Machine]
    there: ThreadPoolExecutor  # on the host of the head

    def __getitem__(self, name: str) -> Machine:
        return self.by_name[name]

    @property
    def head(self) -> Machine:
        return self["head"]

    def line(self, uses: int = 1) -> str:
        """A line that lets a machine join."""
        return self.call(lambda client: client.create_join_token(uses=uses).line)

    def submit(self, name: str, run: str, **more: Any) -> str:
        """The job's id."""
        spec = {"name": name, "run": run, "resources": {"gpu": 1}, **more}
        return self.call(lambda client: client.submit(spec)[0].id)

    def logs(self, job: str) -> str:
        """All of it, to its end."""
        pieces = self.call(
            lambda client: [one.data for one in client.logs(job, follow=True)]
        )
        return "".join(pieces)

    def call(self, ask: Callable[[corral.Client], T]) -> T:
        """Ask the head, from its own host."""

        def asked() -> T:
            with corral.Client(dir=self.head.root) as client:
                return ask(client)

        return self.there.submit(asked).result(PATIENCE_SECONDS)

    def job(self, name: str) -> api.JobDetail:
        return self.call(lambda client: client.job(name))

    def until_state(self, name: str, *states: str) -> None:
        until(lambda: self.job(name).state in states, f"{name} is {states}")

    def node(self, name: str) -> api.NodeDetail:
        return self.call(lambda client: client.node(name))

    def until_node(self, name: str, liveness: str) -> None:
        until(lambda: self.node(name).liveness == liveness, f"{name} is {liveness}")

    def stop(self, job: str) -> None:
        """Cancel it, and see it gone."""
        self.call(lambda client: client.cancel(job))
        self.until_state(job, "CANCELLED", "DONE", "FAILED")


@contextmanager
def machines(
    *names: str,
    up: Callable[[Path, Host], Sequence[str]] = lambda folder, head: ("--nodes", "0"),
) -> Iterator[Machines]:
    """A head without nodes of its own on the host `head`, and these hosts, which have
    joined nothing yet. Nothing of it is left afterwards. `up`: more words for `corral
    up` on the host of the head, where all of it lies in this folder."""
    folder = Path(tempfile.mkdtemp(prefix="corral-m-"))
    with hosts("head", *names) as made, made["head"].thread() as there:
        them = {one: Machine(made[one], folder / one) for one in ("head", *names)}
        found = Machines(made, them, there)
        try:
            found.head.ok(
                "up", "--host", made["head"].address, *up(folder, made["head"])
            )
            yield found
        finally:
            found.head.corral("down", "-y")
            for pid in House(folder).processes():
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            until(lambda: not House(folder).processes(), "all has ended")
            shutil.rmtree(folder, ignore_errors=True)
