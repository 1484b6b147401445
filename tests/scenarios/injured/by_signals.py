"""Cells in which somebody outside kills or stops a process of a healthy job, and of its
memory."""

import signal
from pathlib import Path
from typing import Any, Final

from corral.domain.failure_class import FailureKind as F
from tests.scenarios.injured.scene import EITHER, USER, Cell, Scene, pause

PYTHON: Final = "$CORRAL_PYTHON $PROGRAMS"
LOOP: Final = f"{PYTHON}/loop.py"
RING: Final = f"{PYTHON}/ring.py"
RANK_1: Final = ("rank 1", "{node1}")
TORCHRUN: Final = (
    "$CORRAL_PYTHON -m torch.distributed.run --standalone --nproc-per-node 2 "
    "$PROGRAMS/ddp.py"
)
PIPELINE: Final = (
    "set -eo pipefail; while true; do touch $CELL/ready-0; seq 200000"
    " | awk '{ print $1 * 2 }' | sort -n | tail -1; done"
)


def to(number: int, rank: int = 0, mark: str = ".py") -> Any:
    return lambda scene: scene.kill(scene.program(rank, mark), number)


def to_child(number: int) -> Any:
    """To the last-born child of the rank's program."""
    return lambda scene: scene.kill(scene.children(scene.program())[-1], number)


def to_piece(name: str) -> Any:
    """Kill the process of this name in a shell's pipeline, when there is one."""

    def hurt(scene: Scene) -> None:
        for _ in range(400):
            for pid in scene.pids(0):
                try:
                    if Path(f"/proc/{pid}/comm").read_text().strip() == name:
                        return scene.kill(pid)
                except OSError:
                    continue
            pause(0.01)
        raise AssertionError(f"no {name}")

    return hurt


def to_worker(number: int) -> Any:
    """To torchrun's worker of local rank 1."""

    def hurt(scene: Scene) -> None:
        for pid in scene.pids():
            words = Path(f"/proc/{pid}/environ").read_bytes()
            if b"\0LOCAL_RANK=1\0" in b"\0" + words:
                return scene.kill(pid, number)
        raise AssertionError("no worker")

    return hurt


def less_memory(scene: Scene) -> int:
    """The job's own group is allowed less than it needs at times."""
    limit = scene.group("memory") / "memory.limit_in_bytes"
    for _ in range(400):
        try:
            return limit.write_text("100M")
        except OSError:  # busy: more is in use at this moment
            pause(0.01)
    raise AssertionError("the limit cannot be lowered")


def eater(rank: int) -> Any:
    """Another process in the job's own group takes all of its memory; the kernel picks
    the rank."""

    def hurt(scene: Scene) -> None:
        pid, group = scene.program(rank), scene.group("memory", rank) / "cgroup.procs"
        Path(f"/proc/{pid}/oom_score_adj").write_text("1000")
        words = "x = []\nwhile True: x.append(bytearray(b'1' * 1_000_000))"
        scene.helper("sh", "-c", f'echo 0 > {group}; exec python3 -c "{words}"')

    return hurt


def kernel_oom(scene: Scene) -> None:
    """What the kernel does when the machine's memory is full. Its words:
    mm/oom_kill.c."""
    pid = scene.program()
    scene.kernel(
        f"oom-kill:constraint=CONSTRAINT_NONE,nodemask=(null),cpuset=/,mems_allowed=0,"
        f"global_oom,task_memcg=/,task=python3,pid={pid},uid=0",
        f"Out of memory: Killed process {pid} (python3) total-vm:8143824kB, anon-rss:7919384kB,"
        f" file-rss:1044kB, shmem-rss:0kB, UID:0 pgtables:15936kB oom_score_adj:0",
    )
    scene.kill(pid)


MEMORY: Final = {"resources": {"memory": "200MB"}}
CRASH: Final = frozenset({F.CRASH})
KILLED: Final = frozenset({F.KILLED})
ASKED_TO_END: Final = frozenset({F.INTERRUPTED, F.KILLED})
CELLS: Final = [
    Cell(name="kill-loop", run=LOOP, hurt=to(9), kinds=KILLED, paid=EITHER),
    Cell(
        name="kill-ring-1",
        run=RING,
        ranks=2,
        hurt=to(9, 1),
        kinds=KILLED,
        culprit=RANK_1,
        paid=EITHER,
    ),
    Cell(name="segv-loop", run=LOOP, hurt=to(signal.SIGSEGV), kinds=CRASH),
    Cell(name="abrt-loop", run=LOOP, hurt=to(signal.SIGABRT), kinds=CRASH),
    Cell(name="bus-loop", run=LOOP, hurt=to(signal.SIGBUS), kinds=CRASH),
    Cell(name="term-loop", run=LOOP, hurt=to(signal.SIGTERM), kinds=ASKED_TO_END, paid=EITHER),
    Cell(name="int-loop", run=LOOP, hurt=to(signal.SIGINT), kinds=ASKED_TO_END, paid=EITHER),
    Cell(name="hup-loop", run=LOOP, hurt=to(signal.SIGHUP), kinds=ASKED_TO_END, paid=EITHER),
    Cell(
        name="segv-ring-1",
        run=RING,
        ranks=3,
        on=("n1", "n2", "n4"),
        hurt=to(signal.SIGSEGV, 1),
        kinds=CRASH,
        culprit=RANK_1,
    ),
    Cell(
        name="stop-ring-1",
        run=RING,
        ranks=2,
        hurt=to(signal.SIGSTOP, 1),
        kinds=frozenset({F.HANG}),
        culprit=RANK_1,
        paid=EITHER,
    ),
    Cell(
        name="kill-in-pipeline",
        run=f"bash -c '{PIPELINE.replace(chr(39), chr(39) + chr(92) + chr(39) + chr(39))}'",
        hurt=to_piece("sort"),
        kinds=KILLED,
        paid=EITHER,
    ),
    Cell(
        name="kill-pool-worker",
        run=f"{PYTHON}/pool.py",
        hurt=to_child(9),
        kinds=frozenset({F.KILLED, F.CRASH}),
        paid=EITHER,
    ),
    Cell(
        name="memory-limit-lowered",
        run=f"{PYTHON}/spawner.py memory",
        hurt=less_memory,
        kinds=frozenset({F.HOST_MEMORY}),
        spec=MEMORY,
    ),
    Cell(
        name="memory-taken-1",
        run=RING,
        ranks=2,
        hurt=eater(1),
        kinds=frozenset({F.HOST_MEMORY}),
        culprit=RANK_1,
        spec=MEMORY,
    ),
    Cell(
        name="kernel-out-of-memory",
        run=LOOP,
        on=("n6",),
        hurt=kernel_oom,
        kinds=frozenset({F.HOST_MEMORY}),
        paid=EITHER,
    ),
]  # fmt: skip
HEAVY: Final = [
    Cell(
        name="kill-ddp-1",
        run=f"{PYTHON}/ddp.py",
        ranks=2,
        hurt=to(9, 1),
        kinds=KILLED,
        culprit=RANK_1,
        paid=EITHER,
        is_heavy=True,
    ),
    Cell(
        name="segv-ddp-0-of-4",
        run=f"{PYTHON}/ddp.py",
        ranks=4,
        spec={"nodes": 2, "per": "gpu", "resources": {"gpu": 2}},
        hurt=to(signal.SIGSEGV, 0),
        kinds=CRASH,
        is_heavy=True,
    ),
    Cell(
        name="stop-ddp-1",
        run=f"{PYTHON}/ddp.py",
        ranks=2,
        hurt=to(signal.SIGSTOP, 1),
        kinds=frozenset({F.HANG}),
        culprit=RANK_1,
        paid=EITHER,
        is_heavy=True,
    ),
    Cell(
        name="kill-torchrun-worker",
        run=TORCHRUN,
        spec={"resources": {"cpu": 1}},
        culprit=("rank 1", "{node0}"),
        hurt=to_worker(9),
        kinds=KILLED,
        paid=EITHER,
        is_heavy=True,
    ),
    Cell(
        name="abrt-torchrun-worker",
        run=TORCHRUN,
        spec={"resources": {"cpu": 1}},
        culprit=("rank 1", "{node0}"),
        hurt=to_worker(signal.SIGABRT),
        kinds=CRASH,
        is_heavy=True,
    ),
    Cell(
        name="kill-loader-worker",
        run=f"{PYTHON}/loader.py",
        hurt=to_child(9),
        kinds=KILLED,
        paid=EITHER,
        is_heavy=True,
    ),
    Cell(
        name="segv-loader-worker",
        run=f"{PYTHON}/loader.py",
        hurt=to_child(signal.SIGSEGV),
        kinds=CRASH,
        paid=USER,
        is_heavy=True,
    ),
    Cell(
        name="bus-loader-worker",
        run=f"{PYTHON}/loader.py",
        hurt=to_child(signal.SIGBUS),
        kinds=frozenset({F.CRASH, F.SHARED_MEMORY}),
        is_heavy=True,
    ),
]
