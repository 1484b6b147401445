"""A job that writes what becomes of it, to a file that all machines see: "attempt
begins on node", then a line a tick. Two attempts at once, or a healthy one that was
ended, would stand there."""

import itertools
import shlex
import sys
import time
from pathlib import Path

from tests.scenarios.house import until
from tests.scenarios.machines import Machines

_numbers = itertools.count(1)
WORKER = """
import os, sys, time
with open(sys.argv[1], "a", buffering=1) as log:
    who = os.environ["CORRAL_ATTEMPT"]
    print(who, "begins on", os.environ["CORRAL_NODE"], file=log)
    while not os.path.exists(sys.argv[2]):
        print(who, "lives", file=log)
        time.sleep(0.1)
    print(who, "ends", file=log)
"""


def saves_of(found: Machines) -> Path:
    return found.head.root.parent / "saves"


class Worker:
    """A job on w1, or wherever it goes from there, and what it wrote."""

    def __init__(self, found: Machines, **spec: object) -> None:
        self.found = found
        self.folder = found.head.root.parent / f"work-{next(_numbers)}"
        self.folder.mkdir()
        self.log, self.over = self.folder / "log", self.folder / "over"
        words = [sys.executable, "-c", WORKER, str(self.log), str(self.over)]
        self.job = found.submit("worker", shlex.join(words), **spec)
        found.until_state(self.job, "RUNNING")
        until(lambda: "lives" in self.read(), "it writes")

    def read(self) -> str:
        return self.log.read_text() if self.log.exists() else ""

    def begun(self) -> list[str]:
        return [line for line in self.read().splitlines() if "begins" in line]

    def moves_on(self) -> None:
        """It is alive, here and now."""
        size = len(self.read())
        until(lambda: len(self.read()) > size, "it goes on writing")

    def until_gone(self, attempt: int) -> None:
        """It was ended: it writes no more, and did not end by itself."""

        def is_gone() -> bool:
            before = self.read().count(f"{attempt} lives")
            time.sleep(0.5)
            return self.read().count(f"{attempt} lives") == before

        until(is_gone, f"attempt {attempt} is ended")
        assert f"{attempt} ends" not in self.read()

    def end(self) -> None:
        self.over.touch()
        self.found.until_state(self.job, "DONE", "FAILED")
        assert self.found.job(self.job).state == "DONE"


def parted_for(found: Machines, ways: list[tuple[str, str]], seconds: float) -> None:
    """Nothing passes these ways for so long, and longer where that was not yet
    noticed."""
    for way in ways:
        found.hosts.cut(*way)
    time.sleep(seconds)
    for source, _ in ways:
        if source != "head":
            found.until_node(source, "silent")
    for way in ways:
        found.hosts.heal(*way)
