"""What an injector has to do with: a healthy job that runs, and the machine that it
runs on."""

import os
import signal
import subprocess
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from corral.domain.failure_class import FailureKind
from tests.scenarios.house import House

STEP_SECONDS: Final = 1.0
PROGRAMS: Final = Path(__file__).with_name("programs")
USER: Final = frozenset({"user"})
INFRA: Final = frozenset({"infra"})
EITHER: Final = USER | INFRA  # nothing on the machine could tell whose doing it was


@dataclass(slots=True)
class Scene:
    """A cell in a running cluster: its folder is seen from all nodes, as $CELL."""

    house: House
    name: str
    folder: Path
    job: str = ""
    nodes: tuple[str, ...] = ()
    undo: list[Callable[[], object]] = field(default_factory=list)
    helpers: list["subprocess.Popen[bytes]"] = field(default_factory=list)

    def pids(self, rank: int | None = None) -> list[int]:
        """Processes of the job's first attempt, the oldest first; those of one rank."""
        found = sorted(self.house.ranks(self.job, 1))
        if rank is None:
            return found
        return [
            pid for pid in found if f"\0RANK={rank}\0" in "\0" + _text(pid, "environ")
        ]

    def program(self, rank: int = 0, mark: str = ".py") -> int:
        """The rank's own program: its first process whose arguments have the mark."""
        for pid in self.pids(rank):
            is_shell = _text(pid, "comm").strip() in ("sh", "bash", "dash")
            if mark in _text(pid, "cmdline") and not (mark and is_shell):
                return pid
        raise AssertionError(f"{self.name}: no {mark} among {self.pids(rank)}")

    def children(self, of: int) -> list[int]:
        """Its children, the oldest first."""
        return [pid for pid in self.pids() if _parent(pid) == of]

    def parent(self, of: int) -> int:
        return _parent(of)

    def kill(self, pid: int, number: int = signal.SIGKILL) -> None:
        os.kill(pid, number)

    def node(self, rank: int = 0) -> str:
        return self.house.job(self.job).attempts[0].seats[rank].node

    def gpu(self, rank: int = 0) -> int:
        gpus = self.house.job(self.job).attempts[0].seats[rank].gpus
        assert gpus is not None
        return gpus[0]

    def enter(self, *words: str, rank: int = 0) -> None:
        """Run it in the file systems that the rank sees."""
        where = f"--mount=/proc/{self.program(rank, '')}/ns/mnt"
        subprocess.run(["nsenter", where, *words], check=True, capture_output=True)

    def shell(self, words: str, rank: int = 0) -> None:
        self.enter("sh", "-c", words, rank=rank)

    def kernel(self, *lines: str, node: str = "") -> None:
        """The kernel of the node says this."""
        log = self.house.root / "nodes" / (node or self.node()) / "kernel.log"
        with log.open("a") as file:
            file.writelines(f"{line}\n" for line in lines)

    def bus(self, rank: int = 0) -> str:
        return f"PCI:0000:{self.gpu(rank):02x}:00"

    def device(self, text: str, rank: int = 0) -> None:
        """From now on the stand-in of the rank's GPU answers this."""
        fresh = self.folder / f"fresh-{rank}"
        fresh.write_text(text)
        fresh.rename(self.folder / f"gpu-{rank}")

    def strace(self, pid: int, call: str, answer: str, path: str = "") -> None:
        """The kernel answers this call of the process with an error."""
        words = ["strace", "-f", "-qq", "-p", str(pid), "-e", f"trace={call}"]
        words += ["-e", f"inject={call}:{answer}"] + (["-P", path] if path else [])
        self.helper(*words)

    def helper(self, *words: str) -> "subprocess.Popen[bytes]":
        """A process of the injector's own, which is ended at the end."""
        null = subprocess.DEVNULL
        made = subprocess.Popen(words, stdin=null, stdout=null, stderr=null)
        self.helpers.append(made)
        return made

    def prlimit(self, pid: int, **limits: int | str) -> None:
        for name, value in limits.items():
            words = ["prlimit", f"--pid={pid}", f"--{name}={value}"]
            subprocess.run(words, check=True)

    def group(self, controller: str, rank: int = 0) -> Path:
        """The folder of the job's control group (version 1)."""
        for line in (
            Path(f"/proc/{self.program(rank, '')}/cgroup").read_text().splitlines()
        ):
            _, names, path = line.split(":", 2)
            if controller in names.split(","):
                return Path("/sys/fs/cgroup") / controller / path.lstrip("/")
        raise AssertionError(f"no {controller}")

    def close(self) -> None:
        for each in self.helpers:
            each.kill()
            each.wait()
        for undo in reversed(self.undo):
            with suppress(OSError, subprocess.SubprocessError):
                undo()


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """A healthy program, what is done to its machine, and what its end is to be read
    as.

    `kinds`: each class that is right. `culprit`: words that the culprit must have;
    {node0} and {gpu0} stand for where rank 0 is. `paid`: whose budget may pay. `ready`:
    files that the program makes when it is at work.
    """

    name: str
    run: str
    hurt: Callable[[Scene], object]
    kinds: frozenset[FailureKind]
    culprit: tuple[str, ...] = ("rank 0", "{node0}")
    paid: frozenset[str] = USER
    before: Callable[[Scene], object] | None = None
    spec: dict[str, Any] = field(default_factory=dict)
    on: tuple[str, ...] = ()
    ranks: int = 1
    is_heavy: bool = False  # imports torch


def _text(pid: int, name: str) -> str:
    with suppress(OSError):
        return Path(f"/proc/{pid}/{name}").read_bytes().decode(errors="replace")
    return ""


def _parent(pid: int) -> int:
    words = _text(pid, "stat").rpartition(")")[2].split()
    return int(words[1]) if len(words) > 1 else 0


def lives(pid: int) -> bool:
    words = _text(pid, "stat").rpartition(")")[2].split()
    return bool(words) and words[0] not in "ZX"


def in_turn(*steps: Callable[[Scene], object]) -> Callable[[Scene], None]:
    """One after the other, with a moment between them."""

    def hurt(scene: Scene) -> None:
        for number, step in enumerate(steps):
            pause(STEP_SECONDS if number else 0.0)
            step(scene)

    return hurt


def pause(seconds: float) -> None:
    time.sleep(seconds)
