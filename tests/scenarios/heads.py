"""Two heads on one PostgreSQL, each with a machine's nodes of its own, as processes."""

import itertools
import json
import os
import shutil
import signal
import tempfile
import threading
import urllib.request
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

from corral.boot.start_head import head_runs, node_processes
from corral.domain.errors import Trouble
from tests.scenarios.house import House, until


class Pair:
    """Heads a and b. a is up first, and leads."""

    def __init__(self, root: Path, address: str) -> None:
        self.root = root
        self.a, self.b = House(root / "a"), House(root / "b")
        self.store = root / "store"
        self.store.touch(mode=0o600)
        self.store.write_text(address)
        self.shared = root / "shared"
        self.shared.mkdir()

    def up(self, here: House, *words: str) -> None:
        common = [
            "--store-file",
            str(self.store),
            "--shared-state",
            str(self.root / "state"),
        ]
        common += ["--shared", str(self.shared)]
        here.up(
            *common, "--name", here.root.name, "--nodes", "1", "--gpus", "0", *words
        )

    def give_key(self, here: House) -> None:
        """It has the key that a has made."""
        here.place.create()
        shutil.copy(self.a.place.key, here.place.key)

    @contextmanager
    def third(self) -> Iterator[House]:
        """One head more, c, which has left again afterwards."""
        c = House(self.root / "c")
        try:
            self.give_key(c)
            self.up(c)
            yield c
            c.ok("down", "--leave", "-y")
        finally:
            _end(c)

    def leader(self) -> House | None:
        return next(
            (one for one in (self.a, self.b) if health(one).get("status") == "ok"), None
        )

    def standby(self) -> House:
        """The one that does not lead, once it is known."""
        until(self.leader, "somebody leads")
        return self.b if self.leader() is self.a else self.a

    def until_leads(self, here: House) -> float:
        return until(
            lambda: health(here).get("status") == "ok", f"{here.root.name} leads"
        )

    def until_heard(self, here: House) -> None:
        def all_heard() -> bool:
            with here.client() as client:
                own = [node for node in client.nodes() if node.id in ("a-n1", "b-n1")]
                return all(
                    node.has_heartbeat and node.liveness == "alive" for node in own
                )

        until(all_heard, "the agents of both machines talk with the leader")

    def freeze(self, here: House) -> int:
        pid = here.head_pid()
        os.kill(pid, signal.SIGSTOP)
        return pid


def health(here: House) -> dict[str, Any]:
    """What the head says of itself; nothing when it does not answer."""
    with suppress(OSError, ValueError):
        url = json.loads(here.place.head_json.read_text())["url"]
        with urllib.request.urlopen(f"{url}/healthz", timeout=2.0) as answer:
            found: dict[str, Any] = json.load(answer)
            return found
    return {}


@contextmanager
def pair(address: str) -> Iterator[Pair]:
    """Both are up, and nothing of them is left afterwards."""
    folder = Path(tempfile.mkdtemp(prefix="corral-2-"))
    made = Pair(folder, address)
    with ExitStack() as after:
        after.callback(shutil.rmtree, folder, ignore_errors=True)
        for here in (made.a, made.b):
            after.callback(_end, here)
        made.up(made.a)
        made.give_key(made.b)
        made.up(made.b)
        yield made


def _end(here: House) -> None:
    if head_runs(here.place) or node_processes(here.place):
        # agents of jobs that are over end by themselves, if asked
        for pid in here.processes():
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)
    for pid in here.processes():
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


class Submitter:
    """Somebody who submits jobs one after the other at one head, and remembers which
    were acknowledged. Each job writes its name into `ran` once, and nothing else
    does."""

    def __init__(
        self, here: House, ran: Path, prefix: str, *, pause_seconds: float = 0.2
    ) -> None:
        self.acknowledged: dict[str, str] = {}
        self.refused: list[str] = []
        self.here, self._ran, self._prefix = here, ran, prefix
        self._pause_seconds = pause_seconds
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._submit, daemon=True)

    def __enter__(self) -> "Submitter":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.end()

    def end(self) -> None:
        self._over.set()
        self._thread.join()

    def until_more(self, more: int = 3) -> None:
        """Until so many further ones were acknowledged."""
        enough = len(self.acknowledged) + more
        until(lambda: len(self.acknowledged) >= enough, "submissions are acknowledged")

    def _submit(self) -> None:
        for number in itertools.count():
            if self._over.wait(self._pause_seconds):
                return
            name = f"{self._prefix}-{number}"
            run = f"echo {name} >> {self._ran}"
            try:
                self.acknowledged[name] = self.here.submit(
                    name, run, resources={"cpu": 0.01}
                )
            except Trouble:
                self.refused.append(name)

    def check(self, here: House) -> None:
        """Nothing acknowledged is lost, and nothing is there or has run twice."""
        for name, id in self.acknowledged.items():
            job = here.until_over(id)
            assert (job.name, job.state, job.attempt) == (name, "DONE", 1), job
        with here.client() as client:
            known = Counter(
                job.name for job in client.jobs(everything=True, limit=10_000)
            )
        mine = {
            name: count
            for name, count in known.items()
            if name.startswith(self._prefix)
        }
        assert (
            set(self.acknowledged) <= set(mine) <= {*self.acknowledged, *self.refused}
        )
        ids = {name: here.job(name).id for name in self.refused if name in mine}
        for id in ids.values():
            here.until_over(id)
        ran = Counter(self._ran.read_text().split())
        assert {name: 1 for name in mine} == mine == {name: ran[name] for name in mine}
