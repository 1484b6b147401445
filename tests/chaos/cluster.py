"""The cluster of a chaos run: its commands, its processes, and small disks for its
nodes."""

import os
import shutil
import signal
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import corral
from corral.domain.errors import CorralError
from corral.engines.local.processes import LocalProcess
from tests.chaos.faults import HEAD, NODES
from tests.chaos.history import Command
from tests.scenarios.house import CORRAL, House

DISK_BYTES: Final = {HEAD: 2 * 1024**3, **{node: 192 * 1024**2 for node in NODES}}
COMMAND_SECONDS: Final = 200.0
FILLER: Final = ".chaos-fills"


@dataclass(frozen=True, slots=True)
class RankProcess:
    """A process of a rank, and the attempt that its environment names."""

    process: LocalProcess
    job: str
    attempt: int


@dataclass(slots=True)
class Cluster:
    """A cluster of three nodes in `folder`/c. `has_small_disks`: each of them, and the
    head, is on a file system of its own.

    Commands may come from several threads.
    """

    folder: Path
    has_small_disks: bool = False
    failed: list[Command] = field(default_factory=list)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def root(self) -> Path:
        return self.folder / "c"

    @property
    def house(self) -> House:
        return House(self.root)

    @property
    def ranks_dir(self) -> Path:
        """A folder that every node sees, and that no full disk touches."""
        return self.folder / "ranks"

    def node_dir(self, node: str) -> Path:
        return self.root / "nodes" / node

    # -- commands --------------------------------------------------------------------------------

    def corral(
        self, *words: str, root: Path | None = None
    ) -> "subprocess.CompletedProcess[str]":
        """Run a command to its end; one that fails is kept in `failed`."""
        began = time.time()
        with self.start(*words, root=root) as started:
            out, err = started.communicate(timeout=COMMAND_SECONDS)
        self._keep(words, began, started.returncode, out + err)
        return subprocess.CompletedProcess(words, started.returncode, out, err)

    def start(self, *words: str, root: Path | None = None) -> "subprocess.Popen[str]":
        plain = {name: one for name, one in os.environ.items() if "CORRAL" not in name}
        return subprocess.Popen(
            [*CORRAL, *words],
            env={
                **plain,
                "CORRAL_DIR": str(root or self.root),
                "COLUMNS": "200",
                "TZ": "UTC",
            },
            cwd=self.folder,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def up(self, times: int = 1) -> None:
        """Start the cluster with that many commands at the same moment."""
        began = time.time()
        commands = [self.start("up") for _ in range(times)]
        for one in commands:
            out, err = one.communicate(timeout=COMMAND_SECONDS)
            self._keep(("up",), began, one.returncode, out + err)

    def _keep(self, words: tuple[str, ...], began: float, code: int, text: str) -> None:
        if code:
            one = Command(
                words=" ".join(words),
                begun=began,
                ended=time.time(),
                code=code,
                text=text,
            )
            with self._lock:
                self.failed.append(one)

    # -- processes -------------------------------------------------------------------------------

    def head(self) -> LocalProcess | None:
        with suppress(OSError, ValueError):
            return LocalProcess.find(self.house.head_pid())
        return None

    def recorded(self, node: str, name: str) -> list[LocalProcess]:
        """Living agents, launchers or shims of the node."""
        pattern = "attempts/*/shim.pid" if name == "shim" else f"{name}.pid"
        files = self.node_dir(node).glob(pattern)
        return [one for file in sorted(files) if (one := LocalProcess.recorded(file))]

    def attempt_of(self, node: str, shim: LocalProcess) -> tuple[str, int]:
        """The attempt of a shim; ("", 0) when it is gone."""
        for file in self.node_dir(node).glob("attempts/*/shim.pid"):
            if LocalProcess.recorded(file) == shim:
                job, _, number = file.parent.name.rpartition(".")
                return job, int(number)
        return "", 0

    def ranks(self, node: str) -> list[RankProcess]:
        return list(self._ranks(node))

    def _ranks(self, node: str) -> Iterator[RankProcess]:
        mark = f"CORRAL_SOCKET={self.node_dir(node)}/"
        for pid in sorted(int(one) for one in os.listdir("/proc") if one.isdecimal()):
            found = LocalProcess.find(pid)
            try:
                said = (
                    Path(f"/proc/{pid}/environ").read_bytes().decode(errors="replace")
                )
            except OSError:
                continue
            env = dict(one.partition("=")[::2] for one in said.split("\0"))
            if found and mark in said and env.get("CORRAL_ATTEMPT", "").isdecimal():
                yield RankProcess(
                    found, env["CORRAL_JOB_ID"], int(env["CORRAL_ATTEMPT"])
                )

    def all_of(self, node: str) -> list[LocalProcess]:
        pids = self.house.processes(f"nodes/{node}/")
        pids += self.house.processes(f"nodes/{node}\0")
        return [one for pid in sorted(set(pids)) if (one := LocalProcess.find(pid))]

    def thaw(self) -> None:
        """Let every process of the cluster go on."""
        for pid in self.house.processes():
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)

    # -- disks -----------------------------------------------------------------------------------

    def folder_of(self, target: str) -> Path:
        """The folder whose file system is the disk of the node, or of the head."""
        return self.root if target == HEAD else self.node_dir(target)

    def make_disks(self) -> str:
        """Mount a small file system for the head, and one for each node. Return why
        there is none, else ""."""
        self.root.mkdir()
        for target, size in DISK_BYTES.items():
            image, place = self.folder / f"{target}.img", self.folder_of(target)
            place.mkdir(parents=True, exist_ok=True)
            with image.open("wb") as file:
                file.truncate(size)
            make = ["mkfs.ext4", "-q", "-F", "-m", "0", str(image)]
            for words in (make, ["mount", str(image), str(place)]):
                try:
                    subprocess.run(words, check=True, capture_output=True, text=True)
                except (OSError, subprocess.CalledProcessError) as error:
                    self.drop_disks()
                    return (
                        f"{words[0]}: {getattr(error, 'stderr', '') or error}".strip()
                    )
            (place / "lost+found").rmdir()
            place.chmod(0o700)
        self.has_small_disks = True
        return ""

    def fill(self, target: str) -> None:
        """Write to the disk of the node, or of the head, until it is full."""
        with (self.folder_of(target) / FILLER).open("ab", buffering=0) as file:
            for size in (1024 * 1024, 4096, 512):
                with suppress(OSError):
                    while True:
                        file.write(b"\0" * size)

    def empty(self, target: str) -> None:
        (self.folder_of(target) / FILLER).unlink(missing_ok=True)

    def clear(self, target: str) -> None:
        """Tell the head, if it answers, that the node is mended; of the head's disk,
        all nodes."""
        with corral.Client(dir=self.root) as client:
            for node in NODES if target == HEAD else (target,):
                for change in (client.clear_node, client.uncordon):
                    with suppress(CorralError):
                        change(node)

    def drop_disks(self) -> list[str]:
        """Unmount them. Return what could not be."""
        left = []
        for target in reversed(DISK_BYTES):
            place = self.folder_of(target)
            if os.path.ismount(place):
                done = subprocess.run(
                    ["umount", str(place)], capture_output=True, text=True
                )
                if done.returncode:
                    left.append(done.stderr.strip())
                    subprocess.run(["umount", "-l", str(place)], capture_output=True)
        self.has_small_disks = False
        return left

    def mounts(self) -> list[str]:
        """Mount points below the run's folder, but for the disks made here."""
        lines = Path("/proc/self/mountinfo").read_text().splitlines()
        points = [line.split(" ")[4] for line in lines]
        own = {str(self.folder_of(target)) for target in DISK_BYTES}
        return [
            one for one in points if one.startswith(str(self.folder)) and one not in own
        ]

    def keep_logs(self) -> None:
        """Copy what explains a violation to beside the run's folder: logs of the head
        and of agents, evidence, the store."""
        into = self.folder.with_name(f"{self.folder.name}-kept")
        into.mkdir(parents=True, exist_ok=True)
        for pattern in ("head.log*", "corral.db*", "nodes/*/*.log"):
            for file in self.root.glob(pattern):
                name = str(file.relative_to(self.root)).replace("/", "-")
                shutil.copy(file, into / name)
        if (evidence := self.ranks_dir / "evidence").is_dir():
            shutil.copytree(evidence, into / "evidence", dirs_exist_ok=True)

    def remove(self) -> None:
        """End what is left of it, and remove its folder."""
        for pid in self.house.processes():
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self.drop_disks()
        shutil.rmtree(self.folder, ignore_errors=True)
