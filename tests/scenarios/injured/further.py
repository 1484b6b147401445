"""Further cells, of other programs and injectors, written after the reader was mended
for the first ones and before it had read these."""

import json
import os
import shutil
import signal
import subprocess
from pathlib import Path
from typing import Any, Final

from corral.domain.failure_class import FailureKind as F
from tests.scenarios.injured import by_machine, by_network, by_signals, by_storage
from tests.scenarios.injured.by_signals import (
    KILLED,
    LOOP,
    PYTHON,
    RANK_1,
    RING,
    to,
    to_child,
)
from tests.scenarios.injured.by_storage import answers, data, on_disk, scratch
from tests.scenarios.injured.scene import EITHER, INFRA, Cell, Scene, in_turn, pause

STORAGE: Final = frozenset({F.STORAGE})
DATA: Final = frozenset({F.DATA})


def shell(step: str, first: str = "true") -> str:
    """A shell script that does this over and over, and ends with its first failure."""
    return (
        f"set -e; {first}; while true; do {step}; touch $CELL/ready-0; sleep 0.1; done"
    )


def packed(*words: str) -> Any:
    """A data set, packed by this command, which adds an ending."""

    def before(scene: Scene) -> None:
        data("text")(scene)
        for path in (scene.folder / "data").iterdir():
            subprocess.run([*words, str(path)], check=True, capture_output=True)
            packed_to = next(path.parent.glob(f"{path.name}.*"))
            path.unlink(missing_ok=True)
            packed_to.rename(path)

    return before


def cut(scene: Scene) -> None:
    by_storage.cut(scene)


def summed(scene: Scene) -> None:
    data("text")(scene)
    words = f"cd {scene.folder}/data && sha256sum part-* > ../sums"
    subprocess.run(["sh", "-c", words], check=True)


def repository(scene: Scene) -> None:
    words = (
        f"git init -q {scene.folder}/repo && cd {scene.folder}/repo && seq 1000 > a && git add a &&"
        " git -c user.name=a -c user.email=a@b commit -qm a"
    )
    subprocess.run(["sh", "-c", words], check=True, capture_output=True)


def empty_objects(scene: Scene) -> None:
    """What a node that lost its power leaves of a repository."""
    for path in (scene.folder / "repo/.git/objects").glob("??/*"):
        path.chmod(0o600)
        os.truncate(path, 0)


def library(scene: Scene) -> None:
    (scene.folder / "own.c").write_text("int own(void) { return 0; }\n")
    (scene.folder / "main.c").write_text(
        "int own(void); int main(void) { return own(); }\n"
    )
    words = (
        "gcc -shared -fPIC -o libown.so own.c &&"
        ' gcc -o step main.c -L. -lown -Wl,-rpath,"$PWD" && gcc -o spin spin.c'
    )
    (scene.folder / "spin.c").write_text(
        "int main(void) { for (;;) { volatile int x = 0; } }\n"
    )
    subprocess.run(["sh", "-c", words], check=True, cwd=scene.folder)


def database(scene: Scene) -> None:
    data("sqlite", 1)(scene)


def overwrite(scene: Scene) -> None:
    path = scene.folder / "data" / "part-0"
    with path.open("r+b") as file:
        file.seek(4096)
        file.write(os.urandom(60_000))


def plugin(scene: Scene) -> None:
    (scene.folder / "plugins").mkdir()
    (scene.folder / "plugins/transform.py").write_text(
        "def apply(x):\n    return x + 1\n"
    )


def nulls(scene: Scene) -> None:
    """What a file system that lost its journal leaves of a file."""
    (scene.folder / "plugins/transform.py").write_bytes(bytes(40))


def child_out_of_memory(scene: Scene) -> None:
    child = scene.children(scene.program())[-1]
    group = scene.group("memory") / "cgroup.procs"
    for pid in scene.pids():
        if pid == child:
            Path(f"/proc/{pid}/oom_score_adj").write_text("1000")
    words = "x = []\nwhile True: x.append(bytearray(b'1' * 1_000_000))"
    scene.helper("sh", "-c", f'echo 0 > {group}; exec python3 -c "{words}"')


def while_another_gpu_fails(scene: Scene) -> None:
    file = scene.house.root / "nodes" / scene.node() / "pretend.json"
    file.write_text(json.dumps({"15": {"ecc_volatile_uncorrected": 3}}))
    pause(0.2)
    scene.kill(scene.program())


def while_the_agent_is_away(scene: Scene) -> None:
    scene.house.agent(scene.node()).signal(signal.SIGKILL)
    scene.kill(scene.program(), signal.SIGSEGV)


def switch_fails(scene: Scene) -> None:
    """Words: nvswitch_sxid of NVIDIA's open kernel modules; the answer:
    cudaErrorSystemNotReady."""
    scene.kernel(
        "nvidia-nvswitch1: SXid (PCI:0000:84:00.0): 12028, Fatal, Link 28 egress"
        " non-posted PRIV error"
    )
    pause(0.2)
    scene.device("system not yet initialized")


def fill_on(scene: Scene) -> None:
    """What comes free is taken at once."""
    where = f"--mount=/proc/{scene.pids(0)[0]}/ns/mnt"
    words = f"while sleep 0.01; do cat /dev/zero >> {scene.folder}/disk/other; done"
    scene.helper("nsenter", where, "sh", "-c", words)


def piece(name: str, number: int = signal.SIGKILL) -> Any:
    """To the newest process of this name."""

    def hurt(scene: Scene) -> None:
        for _ in range(200):
            for pid in reversed(scene.pids(0)):
                with open(f"/proc/{pid}/comm") as file:
                    if file.read().strip() == name:
                        return scene.kill(pid, number)
            pause(0.02)
        raise AssertionError(f"no {name}")

    return hurt


JS: Final = (
    'node -e \'const fs = require("fs"); let n = 0; setInterval(() => { n++;'
    ' if (n % 20 == 1) console.log("step", n);'
    ' fs.writeFileSync(process.env.CELL + "/ready-0", "") }, 50)\''
)
JS_FETCH: Final = (
    'node -e \'const http = require("http"), fs = require("fs");'
    ' const url = fs.readFileSync(process.env.CELL + "/url", "utf8");'
    " setInterval(() => http.get(url, (answer) => { answer.resume();"
    ' fs.writeFileSync(process.env.CELL + "/ready-0", "") }), 200)\''
)
ZCAT: Final = "for f in $CELL/data/*; do zcat < $f | perl -ne 1; done"
CELLS: Final = [
    Cell(name="js-killed", run=JS, hurt=to(9, mark="node"), kinds=KILLED, paid=EITHER),
    Cell(
        name="js-server-killed",
        run=JS_FETCH,
        before=by_network.server,
        hurt=by_network.to_server(9),
        kinds=frozenset({F.NETWORK}),
        paid=EITHER,
    ),
    Cell(
        name="c-segv",
        run="set -e; touch $CELL/ready-0; $CELL/spin; echo done",
        before=library,
        hurt=piece("spin", signal.SIGSEGV),
        kinds=frozenset({F.CRASH}),
    ),
    Cell(
        name="zcat-cut",
        before=packed("gzip"),
        hurt=cut,
        kinds=DATA,
        run=f"bash -c '{shell(ZCAT, 'set -o pipefail')}'",
    ),
    Cell(
        name="xz-scratched",
        run=shell(
            "for f in $CELL/data/*; do xz -dc --format=xz < $f > /dev/null; done"
        ),
        before=packed("xz"),
        hurt=scratch,
        kinds=DATA,
    ),
    Cell(
        name="zstd-cut",
        run=shell("for f in $CELL/data/*; do zstd -dc < $f > /dev/null; done"),
        before=packed("zstd", "-q"),
        hurt=cut,
        kinds=DATA,
    ),
    Cell(
        name="sums-differ",
        run=shell("(cd $CELL/data && sha256sum --quiet -c ../sums)"),
        before=summed,
        hurt=scratch,
        kinds=DATA,
    ),
    Cell(
        name="sqlite-shell",
        run=shell(
            "sqlite3 $CELL/data/part-0 'select sum(length(value)) from samples' >&2"
        ),
        before=database,
        hurt=overwrite,
        kinds=DATA,
    ),
    Cell(
        name="git-objects-empty",
        run=shell(
            "git -c safe.directory=* -C $CELL/repo log -p | tail -1"
            " && git -c safe.directory=* -C $CELL/repo fsck --no-dangling"
        ),
        before=repository,
        hurt=empty_objects,
        kinds=frozenset({F.DATA, F.FILES}),
    ),
    Cell(
        name="wget-503",
        run=shell("wget -nv -t 1 -O /dev/null $(cat $CELL/url)"),
        before=by_network.server,
        hurt=by_network.answers_with(503),
        kinds=frozenset({F.NETWORK}),
        paid=EITHER,
    ),
    Cell(
        name="child-out-of-memory",
        run=f"{PYTHON}/children.py process",
        hurt=child_out_of_memory,
        kinds=frozenset({F.HOST_MEMORY}),
        spec=by_signals.MEMORY,
    ),
    Cell(
        name="child-crashed",
        run=f"{PYTHON}/children.py process",
        hurt=to_child(signal.SIGSEGV),
        kinds=frozenset({F.CRASH}),
    ),
    Cell(
        name="command-told-to-end",
        run=f"{PYTHON}/children.py run",
        hurt=to_child(signal.SIGTERM),
        kinds=frozenset({F.KILLED, F.INTERRUPTED}),
        paid=EITHER,
    ),
    Cell(
        name="xargs-child-killed",
        run="touch $CELL/ready-0; yes 20 | xargs -P 2 -n 1 sleep",
        hurt=piece("sleep"),
        kinds=KILLED,
        paid=EITHER,
    ),
    Cell(
        name="make-recipe-killed",
        run="printf 'all:\\n\\ttouch $(CELL)/ready-0\\n\\tsleep 300\\n' > Makefile && make",
        hurt=piece("sleep"),
        kinds=KILLED,
        paid=EITHER,
    ),
    Cell(
        name="stop-ring-2-of-3",
        run=RING,
        ranks=3,
        on=("n1", "n2", "n10"),
        hurt=to(signal.SIGSTOP, 2),
        kinds=frozenset({F.HANG}),
        culprit=("rank 2", "{node2}"),
        paid=EITHER,
    ),
    Cell(
        name="usr1-loop",
        run=LOOP,
        hurt=to(signal.SIGUSR1),
        kinds=frozenset({F.KILLED, F.INTERRUPTED}),
        paid=EITHER,
    ),
    Cell(
        name="soft-mount-timed-out",
        run=f"{PYTHON}/reader.py text $CELL/data",
        before=data("text"),
        hurt=answers("read", "ETIMEDOUT", "{cell}/data/part-1"),
        kinds=frozenset({F.STORAGE, F.NETWORK}),
        paid=EITHER,
    ),
    Cell(
        name="device-gone",
        run=f"{PYTHON}/reader.py json $CELL/data",
        before=data("json"),
        hurt=answers("openat", "ENODEV", "{cell}/data/part-1"),
        kinds=STORAGE,
        paid=INFRA,
    ),
    Cell(
        name="endpoint-shut-down",
        run=f"{PYTHON}/reader.py tar $CELL/data",
        before=data("tar"),
        hurt=answers("openat", "ESHUTDOWN", "{cell}/data/part-1"),
        kinds=STORAGE,
        paid=INFRA,
    ),
    Cell(
        name="sqlite-io-error",
        run=f"{PYTHON}/reader.py sqlite $CELL/data",
        before=data("sqlite"),
        hurt=answers("pread64", "EIO", "{cell}/data/part-1"),
        kinds=STORAGE,
        paid=INFRA,
    ),
    Cell(
        name="disk-full-under-dd",
        kinds=frozenset({F.DISK_FULL}),
        paid=EITHER,
        **{
            **on_disk("3m", fill_on),
            "run": "mkdir -p $CELL/disk && mount -t tmpfs -o size=3m none"
            " $CELL/disk && "
            + shell("dd if=/dev/zero of=$CELL/disk/out bs=500k count=2"),
        },
    ),
    Cell(
        name="no-exec",
        kinds=frozenset({F.COMMAND, F.PERMISSION}),
        run="mkdir -p $CELL/disk && mount -t tmpfs none $CELL/disk && cp /bin/true $CELL/disk/step"
        f" && {shell('$CELL/disk/step')}",
        hurt=lambda scene: scene.shell(f"mount -o remount,noexec {scene.folder}/disk"),
        paid=EITHER,
    ),
    Cell(
        name="library-gone",
        run=shell("$CELL/step"),
        before=library,
        hurt=lambda scene: (scene.folder / "libown.so").unlink(),
        kinds=frozenset({F.MODULE, F.COMMAND, F.FILES}),
    ),
    Cell(
        name="plugin-gone",
        run=f"{PYTHON}/plugins.py",
        before=plugin,
        hurt=lambda scene: shutil.rmtree(scene.folder / "plugins"),
        kinds=frozenset({F.MODULE, F.FILES}),
    ),
    Cell(
        name="plugin-of-nulls",
        run=f"{PYTHON}/plugins.py",
        before=plugin,
        hurt=nulls,
        kinds=frozenset({F.SYNTAX, F.DATA}),
    ),
    Cell(
        name="switch-fails",
        run=by_machine.GPU,
        on=("n13",),
        hurt=switch_fails,
        kinds=frozenset({F.GPU_FAULT, F.CLUSTER, F.FABRIC}),
        culprit=("{node0}",),
        paid=INFRA,
    ),
    Cell(
        name="killed-while-another-gpu-fails",
        run=LOOP,
        on=("n15",),
        hurt=while_another_gpu_fails,
        kinds=KILLED,
        paid=EITHER,
    ),
    Cell(
        name="crash-while-the-agent-is-away",
        run=LOOP,
        on=("n10",),
        hurt=while_the_agent_is_away,
        kinds=frozenset({F.CRASH}),
    ),
    Cell(
        name="data-gone-and-will-not-leave",
        run=f"{PYTHON}/gang_reader.py",
        ranks=2,
        before=data("text"),
        hurt=by_storage.gone,
        kinds=frozenset({F.FILES}),
        culprit=RANK_1,
    ),
    Cell(
        name="no-local-ports",
        run=by_network.fetch(),
        before=by_network.server,
        hurt=answers("connect", "EADDRNOTAVAIL"),
        kinds=frozenset({F.NETWORK, F.LIMITS}),
        paid=EITHER,
    ),
    Cell(
        name="file-table-full",
        run=f"{PYTHON}/spawner.py files",
        hurt=answers("openat", "ENFILE"),
        kinds=frozenset({F.LIMITS}),
        paid=EITHER,
    ),
    Cell(
        name="poisoned-page-1",
        run=RING,
        ranks=2,
        on=("n14", "n16"),
        hurt=in_turn(
            lambda scene: scene.kernel(
                "Memory failure: 0x77aa12: Sending SIGBUS to"
                f" python:{scene.program(1)} due to hardware memory corruption",
                node=scene.node(1),
            ),
            lambda scene: scene.kill(scene.program(1), signal.SIGBUS),
        ),
        kinds=frozenset({F.CLUSTER, F.CRASH}),
        culprit=("{node1}",),
        paid=INFRA,
    ),
]
