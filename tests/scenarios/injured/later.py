"""Cells of a third round, written after the second mend and before the reader had read
them."""

import os
import shutil
import signal
import subprocess
from typing import Final

from corral.domain.failure_class import FailureKind as F
from tests.scenarios.injured import by_network, by_storage
from tests.scenarios.injured.by_signals import (
    KILLED,
    LOOP,
    PYTHON,
    RANK_1,
    RING,
    to,
    to_child,
)
from tests.scenarios.injured.by_storage import STEPS, answers, data, on_disk, tool
from tests.scenarios.injured.further import DATA, STORAGE, packed, piece, shell
from tests.scenarios.injured.scene import EITHER, INFRA, Cell, Scene, pause


def archive(scene: Scene) -> None:
    data("text")(scene)
    words = "tar czf set.tgz data && zip -qr set.zip data || python3 -m zipfile -c set.zip data"
    subprocess.run(
        ["sh", "-c", words], check=True, cwd=scene.folder, capture_output=True
    )


def cut_archives(scene: Scene) -> None:
    for name in ("set.tgz", "set.zip"):
        path = scene.folder / name
        os.truncate(path, path.stat().st_size // 2)


def half_json(scene: Scene) -> None:
    (scene.folder / "config.json").write_text('{"rate": 0.1, "layers": [1, 2, 3]}')


def spoil_json(scene: Scene) -> None:
    (scene.folder / "config.json").write_text('{"rate": 0.1, "lay')


def not_utf8(scene: Scene) -> None:
    path = scene.folder / "data" / "part-1"
    with path.open("r+b") as file:
        file.seek(100)
        file.write(b"\xff\xfe\x80\x81")


def group_frozen(scene: Scene) -> None:
    """The control group of rank 1 is frozen by somebody."""
    group = scene.group("freezer", 1) / "freezer.state"
    group.write_text("FROZEN")
    pause(3.0)
    scene.kill(scene.program(0), signal.SIGSEGV)
    group.write_text("THAWED")


def disk_told_of_mapped_file(scene: Scene) -> None:
    """A page of a mapped file cannot be read. The kernel's words: block/blk-core.c,
    fs/buffer.c."""
    scene.kernel(
        "I/O error, dev sdb, sector 88012 op 0x0:(READ) flags 0x84700 phys_seg 4 prio class 2",
        "Buffer I/O error on dev sdb, logical block 11001, async page read",
    )
    pause(1.0)
    scene.kill(scene.program(), signal.SIGBUS)


def remounted(scene: Scene) -> None:
    """The kernel's words: fs/ext4/super.c."""
    scene.kernel(
        "EXT4-fs error (device nvme1n1): ext4_find_entry:1463: inode #2: comm python3: reading"
        " directory lblock 0",
        "EXT4-fs (nvme1n1): Remounting filesystem read-only",
    )
    scene.shell(f"mount -o remount,ro {scene.folder}/disk")


def server_blocked(scene: Scene) -> None:
    """The kernel's words: net/sunrpc/clnt.c."""
    scene.kernel("nfs: server filer-3 not responding, still trying", node=scene.node(1))
    pause(0.8)
    scene.kill(scene.program(1), signal.SIGSTOP)


def out_of_memory_1(scene: Scene) -> None:
    pid = scene.program(1)
    line = f"Out of memory: Killed process {pid} (python) total-vm:81438kB, anon-rss:79193kB"
    scene.kernel(line, node=scene.node(1))
    scene.kill(pid)


def two_xids(scene: Scene) -> None:
    """A page is retired after the error, as drivers tell both."""
    bus = scene.bus()
    scene.kernel(
        f"NVRM: Xid ({bus}): 95, pid='<unknown>', name=<unknown>, Uncontained: FBHUB."
    )
    pause(0.2)
    scene.device("unknown error")
    scene.kernel(
        f"NVRM: Xid ({bus}): 64, Row Remapper Error: (0x0000000c3a2) - All reserved rows"
    )


def folder_for_tool(scene: Scene) -> None:
    shutil.rmtree(scene.folder / "venv/bin")
    (scene.folder / "venv/bin/step").mkdir(parents=True)


CELLS: Final = [
    Cell(
        name="tgz-cut",
        run=shell("tar xzf $CELL/set.tgz -C ."),
        before=archive,
        hurt=cut_archives,
        kinds=DATA,
    ),
    Cell(
        name="zip-cut",
        run=shell("$CORRAL_PYTHON -m zipfile -t $CELL/set.zip"),
        before=archive,
        hurt=cut_archives,
        kinds=DATA,
    ),
    Cell(
        name="jq-config-cut",
        run=shell("jq -e .rate $CELL/config.json"),
        before=half_json,
        hurt=spoil_json,
        kinds=frozenset({F.DATA, F.SYNTAX}),
    ),
    Cell(
        name="not-utf8",
        run=f"{PYTHON}/reader.py text $CELL/data",
        before=data("text"),
        hurt=not_utf8,
        kinds=DATA,
    ),
    Cell(
        name="bz2-cut",
        run=shell("for f in $CELL/data/*; do bzcat < $f > /dev/null; done"),
        before=packed("bzip2"),
        hurt=by_storage.cut,
        kinds=DATA,
    ),
    Cell(
        name="crash-beside-a-frozen-rank",
        run=RING,
        ranks=2,
        hurt=group_frozen,
        kinds=frozenset({F.CRASH}),
    ),
    Cell(
        name="page-of-a-file-unreadable",
        run=LOOP,
        on=("n4",),
        hurt=disk_told_of_mapped_file,
        kinds=STORAGE,
        culprit=("{node0}",),
        paid=INFRA,
    ),
    Cell(
        name="remounted-read-only",
        on=("n5",),
        kinds=STORAGE,
        culprit=("{node0}",),
        paid=INFRA,
        **on_disk("9m", remounted),
    ),
    Cell(
        name="filer-silent",
        run=RING,
        ranks=2,
        on=("n6", "n7"),
        hurt=server_blocked,
        kinds=frozenset({F.STORAGE, F.HANG}),
        culprit=("{node1}",),
        paid=EITHER,
    ),
    Cell(
        name="kernel-out-of-memory-1",
        run=RING,
        ranks=2,
        on=("n13", "n15"),
        hurt=out_of_memory_1,
        kinds=frozenset({F.HOST_MEMORY}),
        culprit=RANK_1,
        paid=EITHER,
    ),
    Cell(
        name="uncontained-and-remap",
        run=f"{PYTHON}/gpu.py",
        on=("n10",),
        hurt=two_xids,
        kinds=frozenset({F.GPU_FAULT}),
        culprit=("GPU {gpu0}", "{node0}"),
        paid=INFRA,
    ),
    Cell(
        name="alarm-loop",
        run=LOOP,
        hurt=to(signal.SIGALRM),
        kinds=frozenset({F.KILLED, F.INTERRUPTED}),
        paid=EITHER,
    ),
    Cell(name="ill-loop", run=LOOP, hurt=to(signal.SIGILL), kinds=frozenset({F.CRASH})),
    Cell(
        name="awk-killed-in-pipeline",
        run="bash -c 'set -eo pipefail; while true; do touch $CELL/ready-0;"
        ' seq 3000000 | awk "{ s += 1 } END { print s }"; done\'',
        hurt=piece("awk"),
        kinds=KILLED,
        paid=EITHER,
    ),
    Cell(
        name="pool-child-crashed",
        run=f"{PYTHON}/children.py process",
        hurt=to_child(signal.SIGABRT),
        kinds=frozenset({F.CRASH}),
    ),
    Cell(
        name="command-killed",
        run=f"{PYTHON}/children.py run",
        hurt=to_child(signal.SIGKILL),
        kinds=KILLED,
        paid=EITHER,
    ),
    Cell(
        name="gateway-502",
        run=shell("curl -sSf -o /dev/null $(cat $CELL/url)"),
        before=by_network.server,
        hurt=by_network.answers_with(502),
        kinds=frozenset({F.NETWORK}),
        paid=EITHER,
    ),
    Cell(
        name="shard-404",
        run=by_network.fetch(),
        before=by_network.server,
        hurt=by_network.answers_with(404),
        kinds=frozenset({F.FILES, F.NETWORK}),
    ),
    Cell(
        name="no-route",
        run=by_network.fetch(),
        before=by_network.server,
        hurt=answers("connect", "EHOSTUNREACH"),
        kinds=frozenset({F.NETWORK}),
        paid=EITHER,
    ),
    Cell(
        name="write-io-error",
        run=shell("dd if=/dev/zero of=$CELL/out bs=10k count=2 conv=fsync"),
        hurt=lambda scene: scene.strace(scene.pids(0)[0], "fsync", "error=EIO"),
        kinds=STORAGE,
        paid=INFRA,
    ),
    Cell(
        name="tool-is-a-folder",
        run=STEPS,
        before=tool,
        hurt=folder_for_tool,
        kinds=frozenset({F.COMMAND, F.FILES, F.PERMISSION}),
    ),
    Cell(
        name="quota-of-inodes",
        kinds=frozenset({F.DISK_FULL}),
        paid=EITHER,
        **on_disk(
            "9m,nr_inodes=12",
            lambda scene: scene.shell(
                f"cd {scene.folder}/disk; touch 1 2 3 4 5 6 7 8 9 || true"
            ),
        ),
    ),
    Cell(
        name="segv-ring-0-while-rank-1-sleeps",
        run=RING,
        ranks=3,
        on=("n1", "n2", "n4"),
        hurt=to(signal.SIGSEGV, 2),
        kinds=frozenset({F.CRASH}),
        culprit=("rank 2", "{node2}"),
    ),
]
