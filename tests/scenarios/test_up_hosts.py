"""corral up --hosts: over ssh, to real ssh servers on hosts of their own."""

import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path

import pytest

from corral.boot.own_wheel import own_wheel
from corral.boot.ssh_hosts import REQUIREMENTS
from tests.scenarios.house import CORRAL
from tests.scenarios.machines import Machines, machines
from tests.sshd import key, need_sshd, sshd

pytestmark = pytest.mark.xdist_group("machines")


def served(found: Machines, stack: ExitStack, *names: str, **env: object) -> Path:
    """An ssh server on each of these; the key that lets in. What the head knows of
    them, is in its home's known_hosts."""
    folder = found.head.root.parent
    home = folder / "home"
    (home / ".ssh").mkdir(parents=True, mode=0o700)
    found.head.env["HOME"] = str(home)
    admitted = key(folder / "key")
    for name in names:
        there = folder / f"home-{name}"
        there.mkdir()
        line = stack.enter_context(
            sshd(
                found[name].host,
                folder / f"sshd-{name}",
                admitted,
                {"HOME": there, **env},
            )
        )
        with (home / ".ssh" / "known_hosts").open("a") as known:
            known.write(line)
    return admitted


def test_machines_are_brought_up_over_ssh_and_those_that_fail_are_told_apart() -> None:
    need_sshd()
    pytest.importorskip("asyncssh")
    with machines("w1", "w2", "w3") as found, ExitStack() as stack:
        admitted = served(found, stack, "w1", "w2")
        folder = found.head.root.parent
        lines = [
            f"root@{found[name].host.address} --name {name} --pretend --gpus 1 "
            # fmt: skip
            f"--dir {found[name].root}  # {name}"
            for name in ("w1", "w2", "w3")
        ]
        (folder / "hosts").write_text("\n".join(lines))
        words = ["up", "--hosts", str(folder / "hosts"), "--ssh-key", str(admitted)]
        words += ["--python", sys.executable]
        done = found.head.corral(*words)
        assert done.returncode == 4, done.stderr
        assert "1 of 3 hosts have not joined" in done.stderr
        nodes = {
            one.id: one.address for one in found.call(lambda client: client.nodes())
        }
        assert nodes == {name: found[name].host.address for name in ("w1", "w2")}
        # a machine that is not known yet is not believed, and it is said how it comes
        # to be known
        known = folder / "home" / ".ssh" / "known_hosts"
        known.write_text(known.read_text().splitlines()[0] + "\n")
        (folder / "hosts").write_text("\n".join(lines[:2]))
        done = found.head.corral(*words)
        assert "not in known_hosts" in done.stderr
        assert f"ssh-keyscan {found['w2'].host.address}" in done.stderr
        assert "joined" in done.stdout
        # w1 again: nothing new
        assert len(found.call(lambda client: client.nodes())) == 2


@pytest.mark.soak
@pytest.mark.timeout(1800)
def test_corral_is_installed_on_a_machine_that_has_it_not() -> None:
    need_sshd()
    pytest.importorskip("asyncssh")
    with machines("w1") as found, ExitStack() as stack:
        folder = found.head.root.parent
        # a host of the tests has no way out: what pip would fetch
        wheels = folder / "wheels"
        wheels.mkdir()
        download = [sys.executable, "-m", "pip", "download", "-q", "-d", str(wheels)]
        subprocess.run(
            [*download, "--require-hashes", "-r", str(REQUIREMENTS)], check=True
        )
        own_wheel(wheels)
        admitted = served(found, stack, "w1", PIP_NO_INDEX=1, PIP_FIND_LINKS=wheels)
        (folder / "hosts").write_text(f"root@{found['w1'].host.address} --name w1\n")
        words = ["up", "--hosts", str(folder / "hosts"), "--ssh-key", str(admitted)]
        head = found.head
        done = head.host.run([*CORRAL, *words], env=head.environment(), timeout=1500)
        assert done.returncode == 0, done.stdout + done.stderr
        there = folder / "home-w1" / ".corral"
        assert (there / "venv" / "bin" / "corral").exists()
        assert (there / "joined.json").exists()
        assert found.node("w1").liveness == "alive"
        stamp = (there / "venv" / "pyvenv.cfg").stat().st_mtime
        head.ok(*words)  # the same again installs nothing
        assert (there / "venv" / "pyvenv.cfg").stat().st_mtime == stamp
