"""Cells in which the storage, the limits or the files below a healthy job go wrong."""

import gzip
import io
import json
import os
import pickle
import shutil
import sqlite3
import subprocess
import tarfile
from pathlib import Path
from typing import Any, Final

from corral.domain.failure_class import FailureKind as F
from tests.scenarios.injured.by_signals import LOOP, PYTHON
from tests.scenarios.injured.scene import EITHER, INFRA, Cell, Scene, in_turn, pause

STORAGE: Final = frozenset({F.STORAGE})
DATA: Final = frozenset({F.DATA})
LIMITS: Final = frozenset({F.LIMITS})
FILES: Final = frozenset({F.FILES})
DISK_FULL: Final = frozenset({F.DISK_FULL})


def data(kind: str, count: int = 4) -> Any:
    """A data set of that many files in the cell's folder."""

    def before(scene: Scene) -> None:
        folder = scene.folder / "data"
        folder.mkdir(parents=True)
        for number in range(count):
            (folder / f"part-{number}").write_bytes(part(kind))
        if kind == "sqlite":
            for path in folder.iterdir():
                path.unlink()
                with sqlite3.connect(path) as made:
                    made.execute("create table samples (value)")
                    made.executemany(
                        "insert into samples values (?)", [("x" * 99,)] * 2000
                    )

    return before


def part(kind: str) -> bytes:
    rows = [{"value": number, "text": os.urandom(20).hex()} for number in range(2000)]
    text = "".join(json.dumps(row) + "\n" for row in rows).encode()
    whole = io.BytesIO()
    if kind == "gzip":
        return gzip.compress(text)
    if kind == "pickle":
        return pickle.dumps(rows)
    if kind == "csv":
        return b"value,text\n" + b"".join(
            f"{row['value']},x\n".encode() for row in rows
        )
    if kind == "numpy":
        import numpy

        numpy.save(whole, numpy.zeros(20_000))
    elif kind == "tar":
        with tarfile.open(fileobj=whole, mode="w") as made:
            for name in ("a", "b"):
                about = tarfile.TarInfo(name)
                about.size = len(text)
                made.addfile(about, io.BytesIO(text))
    else:
        return text
    return whole.getvalue()


def reads(kind: str) -> str:
    return f"{PYTHON}/reader.py {kind} $CELL/data"


def cut(scene: Scene, share: float = 0.6) -> None:
    """A part of the data set loses its end."""
    path = scene.folder / "data" / "part-2"
    os.truncate(path, int(path.stat().st_size * share))


def scratch(scene: Scene) -> None:
    """Noise over the middle of a part of the data set."""
    path = scene.folder / "data" / "part-2"
    with path.open("r+b") as file:
        file.seek(path.stat().st_size // 3)
        file.write(os.urandom(2000))


def gone(scene: Scene) -> None:
    shutil.rmtree(scene.folder / "data")


def on_disk(size: str, then: Any, run: str = "saver.py $CELL/disk") -> dict[str, Any]:
    """A program on a small file system of its own, which is mounted before it
    begins."""
    mount = f"mkdir -p $CELL/disk && mount -t tmpfs -o size={size} none $CELL/disk"
    mount += " && seq 1000 > $CELL/disk/part-0"
    return {"run": f"{mount} && exec {PYTHON}/{run}", "hurt": then}


def fill(place: str) -> Any:
    return lambda scene: scene.shell(f"cat /dev/zero > {scene.folder}/{place} || true")


def fill_shm(scene: Scene) -> None:
    scene.shell(
        "mount -t tmpfs -o size=2m none /dev/shm; cat /dev/zero > /dev/shm/other || true"
    )


def read_only(scene: Scene) -> None:
    scene.shell(f"mount -o remount,ro {scene.folder}/disk")


def unmount(scene: Scene) -> None:
    scene.shell(f"umount -l {scene.folder}/disk")


def dead_fuse(scene: Scene) -> None:
    """A network file system whose server is gone: FUSE with nobody behind it."""
    script = (
        "import ctypes, os, sys; fd = os.open('/dev/fuse', os.O_RDWR);"
        "options = f'fd={fd},rootmode=40000,user_id=0,group_id=0';"
        "libc = ctypes.CDLL(None, use_errno=True);"
        "sys.exit(libc.mount(b'shard', sys.argv[1].encode(), b'fuse', 0, options.encode()))"
    )
    scene.enter("python3", "-c", script, f"{scene.folder}/data")


def immutable(scene: Scene) -> None:
    path = str(scene.folder / "out")
    subprocess.run(["chattr", "+i", path], check=True)
    scene.undo.append(lambda: subprocess.run(["chattr", "-i", path], check=True))


def pids_limit(scene: Scene) -> None:
    (scene.group("pids") / "pids.max").write_text("1")


def answers(call: str, error: str, path: str = "") -> Any:
    """The kernel answers so, from now on."""

    def hurt(scene: Scene) -> None:
        where = path.format(cell=scene.folder)
        scene.strace(scene.program(), call, f"error={error}", where)

    return hurt


def limit(**limits: int | str) -> Any:
    return lambda scene: scene.prlimit(scene.program(), **limits)


def tool(scene: Scene) -> None:
    """The cell's own copy of a tool."""
    bin = scene.folder / "venv" / "bin"
    bin.mkdir(parents=True)
    shutil.copy("/bin/sleep", bin / "step")


def tool_gone(scene: Scene) -> None:
    shutil.rmtree(scene.folder / "venv")


def tool_cut(scene: Scene) -> None:
    path = scene.folder / "venv" / "bin" / "step"
    fresh = path.with_name("fresh")
    fresh.write_bytes(b"\x7fELF" + bytes(100))
    fresh.chmod(0o755)
    fresh.rename(path)


def disk_fails(scene: Scene) -> None:
    """The kernel's words of a failing disk: block/blk-core.c."""
    scene.kernel(
        "nvme0n1: I/O Cmd(0x2) @ LBA 181034240, 8 blocks, I/O Error (sct 0x2 / sc 0x81) MORE DNR",
        "critical medium error, dev nvme0n1, sector 181034240 op 0x0:(READ) flags 0x80700"
        " phys_seg 1 prio class 2",
    )
    pause(1.5)
    scene.strace(scene.program(), "read", "error=EIO", f"{scene.folder}/data/part-1")


STEPS: Final = (
    "while true; do $CELL/venv/bin/step 0.1 || exit; touch $CELL/ready-0; done"
)
CELLS: Final = [
    Cell(name="disk-full-saves", kinds=DISK_FULL, paid=EITHER, **on_disk("2m", fill("disk/other"))),
    Cell(
        name="shm-full",
        run=f"{PYTHON}/shm.py",
        hurt=fill_shm,
        on=("n9",),
        kinds=frozenset({F.SHARED_MEMORY}),
        paid=EITHER,
    ),
    Cell(name="read-only-saves", kinds=STORAGE, paid=INFRA, **on_disk("9m", read_only)),
    Cell(
        name="unmounted-saves",
        kinds=frozenset({F.FILES, F.STORAGE}),
        paid=EITHER,
        **on_disk("9m", unmount, "reader.py text $CELL/disk"),
    ),
    Cell(name="data-gone", run=reads("text"), before=data("text"), hurt=gone, kinds=FILES),
    Cell(name="json-cut", run=reads("json"), before=data("json"), hurt=cut, kinds=DATA),
    Cell(name="gzip-cut", run=reads("gzip"), before=data("gzip"), hurt=cut, kinds=DATA),
    Cell(name="gzip-scratched", run=reads("gzip"), before=data("gzip"), hurt=scratch, kinds=DATA),
    Cell(name="pickle-cut", run=reads("pickle"), before=data("pickle"), hurt=cut, kinds=DATA),
    Cell(name="numpy-cut", run=reads("numpy"), before=data("numpy"), hurt=cut, kinds=DATA),
    Cell(name="tar-cut", run=reads("tar"), before=data("tar"), hurt=cut, kinds=DATA),
    Cell(name="sqlite-cut", run=reads("sqlite"), before=data("sqlite"), hurt=cut, kinds=DATA),
    Cell(
        name="mmap-cut",
        run=reads("mmap"),
        before=data("text"),
        hurt=lambda scene: os.truncate(scene.folder / "data" / "part-0", 0),
        kinds=frozenset({F.CRASH, F.DATA}),
    ),
    Cell(
        name="data-io-error",
        run=reads("text"),
        before=data("text"),
        hurt=answers("read", "EIO", "{cell}/data/part-1"),
        kinds=STORAGE,
        paid=INFRA,
    ),
    Cell(
        name="data-stale",
        run=reads("gzip"),
        before=data("gzip"),
        hurt=answers("openat", "ESTALE", "{cell}/data/part-1"),
        kinds=STORAGE,
        paid=INFRA,
    ),
    Cell(
        name="data-server-gone",
        run=reads("text"),
        before=data("text"),
        hurt=dead_fuse,
        on=("n9",),
        kinds=STORAGE,
        paid=INFRA,
    ),
    Cell(
        name="data-needs-cleaning",
        run=reads("csv"),
        before=data("csv"),
        hurt=answers("openat", "EUCLEAN", "{cell}/data/part-1"),
        kinds=STORAGE,
        paid=INFRA,
    ),
    Cell(
        name="save-quota",
        run=f"mkdir $CELL/out; exec {PYTHON}/saver.py $CELL/out",
        hurt=answers("fsync", "EDQUOT"),
        kinds=frozenset({F.QUOTA}),
        paid=EITHER,
    ),
    Cell(
        name="save-sync-fails",
        run=f"mkdir $CELL/out; exec {PYTHON}/saver.py $CELL/out",
        hurt=answers("fsync", "EIO"),
        kinds=STORAGE,
        paid=INFRA,
    ),
    Cell(
        name="save-not-permitted",
        run=f"mkdir $CELL/out; exec {PYTHON}/saver.py $CELL/out",
        hurt=immutable,
        kinds=frozenset({F.PERMISSION}),
    ),
    Cell(
        name="disk-errors-in-kernel-log",
        run=reads("text"),
        before=data("text"),
        culprit=("{node0}",),
        hurt=disk_fails,
        on=("n4",),
        kinds=STORAGE,
        paid=INFRA,
    ),
    Cell(
        name="few-files",
        run=f"{PYTHON}/spawner.py files",
        hurt=limit(nofile=12),
        kinds=LIMITS,
        paid=EITHER,
    ),
    Cell(
        name="few-processes", run=f"{PYTHON}/spawner.py process", hurt=pids_limit, kinds=LIMITS,
        paid=EITHER,
    ),
    Cell(
        name="few-threads", run=f"{PYTHON}/spawner.py thread", hurt=pids_limit, kinds=LIMITS,
        paid=EITHER,
    ),
    Cell(
        name="small-files",
        run=f"{PYTHON}/spawner.py write $CELL/out",
        hurt=limit(fsize=100_000),
        kinds=LIMITS,
        paid=EITHER,
    ),
    Cell(
        name="little-cpu-time",
        run=f"{PYTHON}/spawner.py work",
        hurt=limit(cpu="1:600"),
        kinds=frozenset({F.LIMITS}),
        paid=EITHER,
    ),
    Cell(
        name="little-address-space",
        run=f"{PYTHON}/spawner.py memory",
        hurt=limit(**{"as": 30_000_000}),
        kinds=frozenset({F.HOST_MEMORY, F.LIMITS}),
        paid=EITHER,
    ),
    Cell(
        name="venv-gone",
        run=STEPS,
        before=tool,
        hurt=tool_gone,
        kinds=frozenset({F.COMMAND, F.FILES}),
    ),
    Cell(
        name="venv-unreadable",
        run=STEPS,
        before=tool,
        hurt=lambda scene: (scene.folder / "venv/bin/step").chmod(0o644),
        kinds=frozenset({F.COMMAND, F.PERMISSION}),
    ),
    Cell(
        name="venv-cut",
        run=STEPS,
        before=tool,
        hurt=tool_cut,
        kinds=frozenset({F.COMMAND}),
    ),
    Cell(
        name="killed-while-another-gpu-is-lost",
        run=LOOP,
        on=("n5",),
        hurt=in_turn(
            lambda scene: scene.kernel(
                "NVRM: Xid (PCI:0000:0f:00): 79, pid=0, GPU has fallen off the bus."
            ),
            lambda scene: scene.kill(scene.program()),
        ),
        kinds=frozenset({F.KILLED}),
        paid=EITHER,
    ),
]  # fmt: skip


def torch_save(scene: Scene) -> None:
    """A model, as torch saves it."""
    import torch

    torch.save(
        {"model": torch.nn.Linear(512, 64).state_dict()}, scene.folder / "model.pt"
    )


def cut_model(scene: Scene) -> None:
    path = Path(scene.folder / "model.pt")
    os.truncate(path, path.stat().st_size // 2)


HEAVY: Final = [
    Cell(
        name="checkpoint-cut",
        run=f"{PYTHON}/resumer.py $CELL/model.pt",
        before=torch_save,
        hurt=cut_model,
        kinds=frozenset({F.CHECKPOINT, F.DATA}),
        is_heavy=True,
    ),
    Cell(
        name="checkpoint-gone",
        run=f"{PYTHON}/resumer.py $CELL/model.pt",
        before=torch_save,
        hurt=lambda scene: (scene.folder / "model.pt").unlink(),
        kinds=frozenset({F.CHECKPOINT, F.FILES}),
        is_heavy=True,
    ),
]
