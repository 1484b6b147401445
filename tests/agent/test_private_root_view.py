"""What a rank sees of the machine, of its node, and of other nodes."""

import ctypes
import os
import socket
import stat
import subprocess
import sys
import tempfile
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from corral.agent import kernel_mounts
from corral.agent.private_root import enter_private_root, has_private_root
from corral.domain.ids import NodeId
from corral.wire.node import Isolation, NodeSettings

NOBODY = 65534
PR_SET_DUMPABLE = 4


@dataclass
class Cluster:
    """A cluster's folder with two nodes, and a home, outside of which nothing is
    written."""

    root: Path
    home: Path
    user: int = 0
    isolation: Isolation = "disk"
    neighbours: tuple[str, ...] = ()
    closed: bool = False  # whether root has mounted something where only root can pass

    def settings(self, node: str) -> NodeSettings:
        return NodeSettings(
            node=NodeId(node),
            head_file=str(self.root / "head.json"),
            shared=(str(self.root / "shared"), str(self.home / "data")),
            # also one within another
            hidden=(str(self.root / "nodes"), str(self.root)),
            isolation=self.isolation,
            neighbours=self.neighbours,
        )

    def run(self, node: str, script: str, beside: int | None = None) -> str:
        """What the shell script prints in the node's private root."""
        read, write = os.pipe()
        child = os.fork()
        if child == 0:
            self._become(node, script, write, beside)
        os.close(write)
        with os.fdopen(read) as output:
            printed = output.read()
        os.waitpid(child, 0)
        return printed.strip()

    def lends_namespaces(self) -> bool:
        """Whether the kernel lets this user have mounts of its own; by a process that
        ends of it.

        Not what the product says: a private root that fails for another reason is a
        fault.
        """
        child = os.fork()
        if child == 0:
            try:
                self._become_user()
                kernel_mounts.own_mounts()
                os._exit(0)
            finally:
                os._exit(1)
        return os.waitpid(child, 0)[1] == 0

    def enter(self, node: str, beside: int | None = None) -> str:
        if os.geteuid() == 0:
            self._arrange_machine()
        self._become_user()
        os.environ["HOME"] = str(self.home)
        return enter_private_root(
            self.root / "nodes" / node, self.settings(node), beside=beside
        )

    def _arrange_machine(self) -> None:
        """For this process only: nothing of another test is mounted where people write,
        which the kernel would let nobody but root lay an overlay over."""
        kernel_mounts.own_mounts()
        for mount in reversed(kernel_mounts.mounts()):
            if mount.point.startswith(("/tmp/", "/var/tmp/")):
                ctypes.CDLL(None).umount2(
                    mount.point.encode(), kernel_mounts.MNT_DETACH
                )
        if self.closed:
            kernel_mounts.mount("tmpfs", "/mnt", "tmpfs", 0, "mode=700")
            Path("/mnt/inner").mkdir()
            kernel_mounts.mount("tmpfs", "/mnt/inner", "tmpfs")

    def _become_user(self) -> None:
        if self.user:
            os.setgid(self.user)
            os.setuid(self.user)
            # what a process gets back by exec
            ctypes.CDLL(None).prctl(PR_SET_DUMPABLE, 1)

    def _become(self, node: str, script: str, output: int, beside: int | None) -> None:
        try:
            warning = self.enter(node, beside)
            os.dup2(output, 1)
            os.dup2(output, 2)
            if warning:
                os.write(1, f"{warning}\n".encode())
            os.execv("/bin/sh", ["sh", "-c", textwrap.dedent(script)])
        except BaseException as trouble:
            os.write(output, repr(trouble).encode())
        finally:
            os._exit(1)


@pytest.fixture(params=["root", "user"])
def cluster(request: pytest.FixtureRequest) -> Iterator[Cluster]:
    """As root, and as somebody with a user namespace; both where the tests run as
    root."""
    if os.geteuid() != 0 and request.param == "root":
        pytest.skip("needs root")
    # not pytest's own folder: other sessions of pytest close that to other users again
    with tempfile.TemporaryDirectory(
        prefix="corral-view-", ignore_cleanup_errors=True
    ) as folder:
        place = Path(folder)
        made = Cluster(root=place / "cluster", home=place / "home")
        _furnish(made)
        if os.geteuid() == 0 and request.param == "user":
            made.user = NOBODY
            for path in (place, *place.rglob("*")):
                os.chown(path, NOBODY, NOBODY)
        yield made


def _furnish(made: Cluster) -> None:
    for folder in (made.root / "shared", made.home / "data"):
        folder.mkdir(parents=True)
    for node in ("n1", "n2"):
        (made.root / "nodes" / node / "attempts").mkdir(parents=True)
        (made.root / "nodes" / node / "token").write_text(f"secret of {node}")
        (made.root / "nodes" / node / "node.json").write_text("secret")
    for name in ("token", "key", "corral.db"):
        (made.root / name).write_text("secret")
    (made.home / "of-the-host").write_text("from the host")


@pytest.fixture
def lent(cluster: Cluster) -> None:
    """What a private root is made of."""
    if not cluster.lends_namespaces():
        pytest.skip("the kernel lends no user namespace here")


@pytest.mark.usefixtures("lent")
def test_what_a_node_writes_no_other_node_and_not_the_machine_sees(
    cluster: Cluster,
) -> None:
    name = f"corral-test-{os.getpid()}"
    places = f"{cluster.home} /tmp /var/tmp /dev/shm {cluster.home}/.cache"
    write = f"mkdir -p {cluster.home}/.cache; for p in {places}; do echo n1 > $p/{name}; done"
    look = f"for p in {places}; do [ -e $p/{name} ] && echo $p; done; echo end"
    count = f"cat $(for p in {places}; do echo $p/{name}; done)"
    assert cluster.run("n1", f"{write}; {count}").split() == ["n1"] * 5
    assert cluster.run("n2", look) == "end"
    assert (
        subprocess.run(["sh", "-c", look], capture_output=True, text=True).stdout
        == "end\n"
    )


@pytest.mark.usefixtures("lent")
def test_a_node_finds_its_own_disk_again(cluster: Cluster) -> None:
    cluster.run(
        "n1",
        f"echo kept > {cluster.home}/file; echo gone > /dev/shm/corral-{os.getpid()}",
    )
    look = f"cat {cluster.home}/file; ls /dev/shm"
    assert cluster.run("n1", look) == "kept"


def test_a_mount_in_a_folder_closed_to_the_user_keeps_nobody_from_a_private_root(
    cluster: Cluster,
) -> None:
    """As root's podman leaves one behind; without the way there, nothing is written
    there."""
    if os.geteuid() != 0:
        pytest.skip("needs root")
    cluster.closed = True
    assert cluster.run("n1", "echo entered; echo n1 > $HOME/file") == "entered"
    assert not (cluster.home / "file").exists()


@pytest.mark.usefixtures("lent")
def test_the_machines_files_are_there_and_changing_them_changes_only_the_nodes_view(
    cluster: Cluster,
) -> None:
    file = cluster.home / "of-the-host"
    assert (
        cluster.run("n1", f"cat {file}; rm {file}; cat {file} 2>/dev/null")
        == "from the host"
    )
    assert file.read_text() == "from the host"


@pytest.mark.usefixtures("lent")
def test_what_is_written_under_a_shared_path_is_seen_by_all(cluster: Cluster) -> None:
    for shared in (cluster.root / "shared", cluster.home / "data"):
        cluster.run("n1", f"echo from-n1 > {shared}/file")
        assert cluster.run("n2", f"cat {shared}/file") == "from-n1"
        assert (shared / "file").read_text() == "from-n1\n"


def test_the_nodes_own_attempts_are_the_real_files(cluster: Cluster) -> None:
    attempts = cluster.root / "nodes/n1/attempts"
    cluster.run(
        "n1", f"mkdir -p {attempts}/j1.1/work; echo here > {attempts}/j1.1/work/file"
    )
    assert (attempts / "j1.1/work/file").read_text() == "here\n"


@pytest.mark.parametrize("isolation", ["disk", "hide"])
@pytest.mark.usefixtures("lent")
def test_no_secret_and_no_other_node_can_be_read_from_inside(
    cluster: Cluster, isolation: Isolation
) -> None:
    cluster.isolation = isolation
    seen = cluster.run(
        "n1", f"cd {cluster.root}; find . -not -path './nodes/n1/attempts/*' | sort"
    )
    own = ["./nodes/n1/attempts", "./nodes/n1/homes", "./nodes/n1/images"]
    assert seen.split() == [".", "./nodes", "./nodes/n1", *own, "./shared"]
    mounted = cluster.run("n1", "grep nodes/n1/images /proc/self/mountinfo").split(" ")
    assert {"nodev", "nosuid"} <= set(mounted[5].split(","))
    assert stat.S_IMODE((cluster.root / "nodes/n1/images").stat().st_mode) == 0o700
    grep = f"grep -rs secret {cluster.root} {cluster.home}; echo end"
    assert cluster.run("n1", grep) == "end"
    assert "Read-only" in cluster.run(
        "n1", f"touch {cluster.root}/x {cluster.root}/nodes/x"
    )
    assert (cluster.root / "token").read_text() == "secret"


@pytest.mark.usefixtures("lent")
def test_hiding_leaves_the_machines_own_disk(cluster: Cluster) -> None:
    cluster.isolation = "hide"
    cluster.run("n1", f"echo real > {cluster.home}/file")
    assert (cluster.home / "file").read_text() == "real\n"


@pytest.mark.parametrize("isolation", ["disk", "hide"])
@pytest.mark.usefixtures("lent")
def test_nodes_of_one_machine_have_hostnames_by_which_programs_tell_them_apart(
    cluster: Cluster, isolation: Isolation
) -> None:
    """As torchrun does: by the name of the address that the hostname has."""
    cluster.isolation = isolation
    cluster.neighbours = ("n1", "n2")
    address = "$(getent hosts $(hostname) | cut -d ' ' -f 1)"
    called = f"getent hosts {address} | tr -s ' ' | cut -d ' ' -f 2"
    ask = f"hostname; {called}; getent hosts n1 n2 | wc -l"
    before = socket.gethostname()
    assert cluster.run("n1", ask).split() == ["n1", "n1", "2"]
    assert cluster.run("n2", ask).split() == ["n2", "n2", "2"]
    assert socket.gethostname() == before
    cluster.neighbours = ()
    assert cluster.run("n2", "hostname").split() == [before]


def test_without_isolation_nothing_changes(cluster: Cluster) -> None:
    cluster.isolation = "none"
    assert cluster.run("n1", f"cat {cluster.root}/token") == "secret"


@pytest.mark.usefixtures("lent")
def test_one_who_comes_later_joins_the_view_of_those_inside(cluster: Cluster) -> None:
    """A launcher that died leaves shims behind; the next one must not mount the disk
    again."""
    ready, say_ready = os.pipe()
    wait, say_end = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(ready)
        try:
            cluster.enter("n1")
            (cluster.home / "mine").write_text("of the shim")
            Path("/dev/shm/mine").write_text("in memory")
            os.close(say_end)
            os.write(say_ready, b"x")
            os.read(wait, 1)
        finally:
            os._exit(0)
    os.close(say_ready)
    assert os.read(ready, 1) == b"x"
    try:
        look = f"cat {cluster.home}/mine /dev/shm/mine"
        assert cluster.run("n1", look, beside=child) == "of the shimin memory"
        assert has_private_root(child)
        assert not has_private_root(os.getpid())
    finally:
        os.write(say_end, b"x")
        os.waitpid(child, 0)
        for descriptor in (ready, wait, say_end):
            os.close(descriptor)


@pytest.mark.usefixtures("lent")
def test_who_would_join_a_shim_that_has_just_ended_gets_the_nodes_own_disk(
    cluster: Cluster,
) -> None:
    gone = os.fork()
    if gone == 0:
        os._exit(0)
    os.waitpid(gone, 0)
    printed = cluster.run("n1", f"echo own > {cluster.home}/mine", beside=gone)
    assert "no private root" not in printed
    assert not (cluster.home / "mine").exists()
    assert cluster.run("n1", f"cat {cluster.home}/mine").endswith("own")


@pytest.mark.usefixtures("lent")
def test_a_mark_in_a_shared_path_is_proof_only_when_it_is_the_machines_folder(
    cluster: Cluster,
) -> None:
    """A folder that is declared but was not there when the node started is the node's
    own."""
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        cluster._become("n1", "echo $$; exec sleep 600", write, None)
    os.close(write)
    late = cluster.home / "late"
    try:
        inside = int(os.read(read, 100))
        late.mkdir()
        code = "import sys; from corral.agent.discovery.helper import mark_of; "
        code += "path, pid = sys.argv[1:]; print(mark_of(path, int(pid)))"

        def mark(path: Path) -> subprocess.CompletedProcess[str]:
            words = [sys.executable, "-c", code, str(path), str(inside)]
            return subprocess.run(words, capture_output=True, text=True)

        assert len(mark(cluster.home / "data").stdout.strip()) == 32
        refused = mark(late)
        assert (
            "is a different folder in" in refused.stderr
            or "No such file" in refused.stderr
        )
    finally:
        os.close(read)
        os.kill(child, 9)
        os.waitpid(child, 0)
