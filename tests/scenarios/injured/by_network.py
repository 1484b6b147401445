"""Cells in which the network of a healthy job goes wrong: peers, servers, names,
ports."""

import os
import signal
import socket
import subprocess
import sys
from typing import Any, Final

from corral.domain.failure_class import FailureKind as F
from tests.scenarios.injured.by_signals import PYTHON, RING
from tests.scenarios.injured.scene import EITHER, Cell, Scene, pause

NETWORK: Final = frozenset({F.NETWORK})
BETWEEN: Final = frozenset({F.FABRIC, F.NETWORK, F.PEER})
SERVER: Final = """
import http.server, pathlib, sys
class Shard(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        code = int(pathlib.Path(sys.argv[2]).read_text())
        self.send_response(code)
        self.end_headers()
        if code == 200:
            self.wfile.write(bytes(1000))
    def log_message(self, *_): pass
http.server.ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), Shard).serve_forever()
"""


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as made:
        return int(made.getsockname()[1])


def server(scene: Scene) -> None:
    """A server of data outside the cluster. Its address is in the cell's folder."""
    port = free_port()
    (scene.folder / "code").write_text("200")
    scene.helper(sys.executable, "-c", SERVER, str(port), str(scene.folder / "code"))
    (scene.folder / "url").write_text(f"http://127.0.0.1:{port}/shard-1")
    for _ in range(100):
        with socket.socket() as line:
            if line.connect_ex(("127.0.0.1", port)) == 0:
                return
        pause(0.05)


def to_server(number: int) -> Any:
    return lambda scene: os.kill(scene.helpers[0].pid, number)


def answers_with(code: int) -> Any:
    return lambda scene: (scene.folder / "code").write_text(str(code))


def named_server(scene: Scene) -> None:
    """The same, by a name that the node's own table knows."""
    server(scene)
    port = (scene.folder / "url").read_text().rpartition(":")[2]
    (scene.folder / "url").write_text(f"http://storage.cluster.test:{port}")
    (scene.folder / "hosts").write_text("127.0.0.1 localhost storage.cluster.test\n")


def reset_lines(scene: Scene) -> None:
    """The kernel resets each TCP connection of the gang."""
    port = scene.house.job(scene.job).attempts[0].master_port
    for way in ("sport", "dport"):
        words = ["ss", "-K", "-t", "state", "established", way, "=", f":{port}"]
        subprocess.run(words, check=True, capture_output=True)


def fetch(*, more: str = "") -> str:
    return f"{more}exec {PYTHON}/fetch.py $(cat $CELL/url)"


OWN_NAMES: Final = "mount --bind $CELL/hosts /etc/hosts && "


def no_names(scene: Scene) -> None:
    scene.shell("umount -l /etc/hosts; mount --bind /dev/null /etc/resolv.conf")


REBINDS: Final = """
import os, pathlib, socket, sys, time
place = ("127.0.0.1", int(pathlib.Path(os.environ["CELL"], "port").read_text()))
while True:
    with socket.create_server(place) as listener:
        print("serves at", place[1], flush=True)
        pathlib.Path(os.environ["CELL"], "ready-0").touch()
        time.sleep(0.2)
    time.sleep(0.2)
"""


def rebinder(scene: Scene) -> None:
    (scene.folder / "port").write_text(str(free_port()))
    (scene.folder / "rotating.py").write_text(REBINDS)


def take_port(scene: Scene) -> None:
    """Somebody else listens as soon as the program lets go for a moment."""
    place = ("127.0.0.1", int((scene.folder / "port").read_text()))
    while True:
        try:
            taken = socket.socket()
            taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            taken.bind(place)
            taken.listen()
        except OSError:
            taken.close()
            continue
        scene.undo.append(taken.close)
        return


CELLS: Final = [
    Cell(
        name="server-killed",
        run=fetch(),
        before=server,
        hurt=to_server(signal.SIGKILL),
        kinds=NETWORK,
        paid=EITHER,
    ),
    Cell(
        name="server-frozen",
        run=fetch(),
        before=server,
        hurt=to_server(signal.SIGSTOP),
        kinds=NETWORK,
        paid=EITHER,
    ),
    Cell(
        name="server-denies-401",
        run=fetch(),
        before=server,
        hurt=answers_with(401),
        kinds=frozenset({F.ACCESS}),
    ),
    Cell(
        name="server-denies-403",
        run="while true; do curl -sSf -o /dev/null $(cat $CELL/url) || exit; touch $CELL/ready-0;"
        " sleep 0.2; done",
        before=server,
        hurt=answers_with(403),
        kinds=frozenset({F.ACCESS}),
    ),
    Cell(
        name="server-killed-under-curl",
        run="while true; do curl -sSf -o /dev/null $(cat $CELL/url) || exit; touch $CELL/ready-0;"
        " sleep 0.2; done",
        before=server,
        hurt=to_server(signal.SIGKILL),
        kinds=NETWORK,
        paid=EITHER,
    ),
    Cell(
        name="names-broken",
        run=fetch(more=OWN_NAMES),
        before=named_server,
        on=("n9",),
        hurt=no_names,
        kinds=NETWORK,
        paid=EITHER,
    ),
    Cell(
        name="port-taken-between",
        run="$CORRAL_PYTHON $CELL/rotating.py",
        before=rebinder,
        hurt=take_port,
        kinds=frozenset({F.PORT}),
        paid=EITHER,
    ),
    Cell(
        name="ring-reset",
        run=RING,
        ranks=2,
        hurt=reset_lines,
        kinds=BETWEEN,
        culprit=(),
        paid=EITHER,
    ),
]
HEAVY: Final = [
    Cell(
        name="ddp-reset",
        run=f"{PYTHON}/ddp.py",
        ranks=2,
        hurt=lambda scene: reset_all(scene),
        kinds=BETWEEN,
        culprit=(),
        paid=EITHER,
        is_heavy=True,
    ),
]


def reset_all(scene: Scene) -> None:
    """Every connection between processes of the gang, as a switch that goes down would
    end them."""
    pids = set(scene.pids())
    words = ["ss", "-tnpH", "state", "established"]
    for line in subprocess.run(
        words, check=True, capture_output=True, text=True
    ).stdout.splitlines():
        if any(f"pid={pid}," in line for pid in pids):
            mine, other = line.split()[2:4]
            kill = ["ss", "-K", "src", mine, "dst", other]
            subprocess.run(kill, check=True, capture_output=True)
