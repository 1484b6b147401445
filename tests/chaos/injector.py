"""What injects the faults of a schedule into a cluster, and writes down what it did."""

import signal
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Final

from corral.engines.local.processes import LocalProcess
from tests.chaos.cluster import Cluster
from tests.chaos.faults import NODES, Injection
from tests.chaos.history import Fault

STARTS: Final = 4  # tries to start a killed head again


class Injector:
    """An operator makes room on a full disk, and says so; all else heals by itself.

    Each fault has a thread of its own, so that one may come while another lasts."""

    def __init__(self, cluster: Cluster, backups: Path) -> None:
        self.faults: list[Fault] = []
        self.backups: list[tuple[float, Path]] = []
        self.missed: Counter[str] = Counter()  # nothing of that kind lived
        self.errors: list[str] = []
        self._cluster = cluster
        self._folder = backups
        self._over = threading.Event()
        self._threads: list[threading.Thread] = []
        self._full: set[str] = set()

    def run(self, schedule: Iterable[Injection], seconds: float) -> None:
        """Inject for so long; return once every fault is over, which ends them
        early."""
        began = time.monotonic()
        for one in schedule:
            if one.after_seconds > seconds:
                break
            self._over.wait(max(0.0, began + one.after_seconds - time.monotonic()))
            thread = threading.Thread(target=self._guarded, args=(one,), daemon=True)
            thread.start()
            self._threads.append(thread)
        self._over.wait(max(0.0, began + seconds - time.monotonic()))
        self._over.set()
        for thread in self._threads:
            thread.join()

    def _guarded(self, one: Injection) -> None:
        try:
            self._inject(one)
        except Exception as error:  # the run goes on, and its page names the error
            self.errors.append(f"{one.kind} of {one.target}: {error!r}")

    def _inject(self, one: Injection) -> None:
        verb, _, what = one.kind.partition(" ")
        if one.kind == "backup":
            self._back_up()
        elif one.kind.startswith("full disk"):
            self._fill(one)
        elif one.kind == "two starts":
            self._note(one, lambda: self._cluster.up(2))
        elif what.startswith("head") and verb == "kill":
            self._kill_head(one, starts=2 if "two" in what else 1)
        elif one.kind == "kill node":
            self._note(one, lambda: self._cluster.house.kill_node(one.target))
        elif one.kind == "freeze node":
            self._freeze(one, self._cluster.all_of(one.target), one.target)
        elif one.kind == "freeze head":
            self._freeze(one, [head] if (head := self._cluster.head()) else [], "head")
        else:
            self._hit_part(one, verb, what)

    def _hit_part(self, one: Injection, verb: str, what: str) -> None:
        """Kill or freeze an agent, launcher, shim or rank, of another node where this
        has none."""
        for node in (one.target, *(name for name in NODES if name != one.target)):
            job, attempt = "", 0
            if what == "rank":
                ranks = self._cluster.ranks(node)
                if not ranks:
                    continue
                rank = ranks[int(one.chance * len(ranks))]
                process, job, attempt = rank.process, rank.job, rank.attempt
            else:
                found = self._cluster.recorded(node, what)
                if not found:
                    continue
                process = found[int(one.chance * len(found))]
                if what == "shim":
                    job, attempt = self._cluster.attempt_of(node, process)
            if verb == "freeze":
                self._freeze(one, [process], node, job, attempt)
            else:
                began = time.time()
                process.signal(signal.SIGKILL)
                self._keep(one.kind, node, began, job, attempt)
            return
        self.missed[one.kind] += 1

    def _freeze(
        self,
        one: Injection,
        some: list[LocalProcess],
        target: str,
        job: str = "",
        attempt: int = 0,
    ) -> None:
        if not some:
            self.missed[one.kind] += 1
            return
        began = time.time()
        try:
            for process in some:
                process.signal(signal.SIGSTOP)
            self._over.wait(one.seconds)
        finally:
            for process in some:
                process.signal(signal.SIGCONT)
            self._keep(one.kind, target, began, job, attempt)

    def _kill_head(self, one: Injection, starts: int) -> None:
        head = self._cluster.head()
        if head is None:
            self.missed[one.kind] += 1
            return
        began = time.time()
        head.signal(signal.SIGKILL)
        self._over.wait(one.seconds)
        self._keep(one.kind, "head", began)
        for _ in range(STARTS):
            self._cluster.up(starts)
            if self._cluster.head() is not None:
                break
            while "head" in self._full and not self._over.wait(0.5):
                pass  # whoever starts it makes room first

    def _fill(self, one: Injection) -> None:
        if not self._cluster.has_small_disks or one.target in self._full:
            self.missed[one.kind] += 1
            return
        began = time.time()
        self._full.add(one.target)
        try:
            until = time.monotonic() + one.seconds
            while time.monotonic() < until and not self._over.is_set():
                self._cluster.fill(one.target)  # again: what was freed meanwhile
                self._over.wait(1.0)
        finally:
            self._cluster.empty(one.target)
            self._full.discard(one.target)
            self._keep(one.kind, one.target, began)
            self._cluster.clear(one.target)

    def _back_up(self) -> None:
        began = time.time()
        file = self._folder / f"{len(self.backups) + 1}-{int(began)}.backup"
        if self._cluster.corral("backup", str(file)).returncode == 0:
            self.backups.append((began, file))
            self._keep("backup", "head", began)

    def _note(self, one: Injection, act: Callable[[], object]) -> None:
        began = time.time()
        act()
        self._keep(one.kind, one.target, began)

    def _keep(
        self, kind: str, target: str, began: float, job: str = "", attempt: int = 0
    ) -> None:
        about = {"kind": kind, "target": target, "job": job}
        self.faults.append(
            Fault(**about, begun=began, ended=time.time(), attempt=attempt)
        )
