"""The file of hosts, and the wheel that is put on them."""

import asyncio
import base64
import hashlib
import subprocess
import sys
import zipfile
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Any, cast

import pytest

import corral
from corral.boot.extras import needed_to_join
from corral.boot.own_wheel import own_wheel
from corral.boot.settings import ClusterSettings
from corral.boot.ssh_hosts import SshHost, _installed, read_targets
from corral.domain.errors import SpecInvalid


def test_a_line_is_a_host_and_what_goes_to_the_join_there() -> None:
    text = (
        "# ours\n\nw1\nann@10.0.0.2:2222 --name w2 --label 'zone=a b'  # the old one\n"
        "[fd00::1]:22\nfd00::2\n"
    )
    assert read_targets(text, "hosts") == [
        SshHost(host="w1"),
        SshHost(
            host="10.0.0.2",
            port=2222,
            user="ann",
            words=("--name", "w2", "--label", "zone=a b"),
        ),
        SshHost(host="fd00::1"),
        SshHost(host="fd00::2"),
    ]


@pytest.mark.parametrize(
    "text",
    ["", "# none\n", "w1\nw1\n", "w1:ssh\n", "@\n", "-oProxyCommand=x\n", "w1 'open\n"],
)
def test_a_file_that_names_no_hosts_or_odd_ones_is_refused(text: str) -> None:
    with pytest.raises(SpecInvalid) as refused:
        read_targets(text, "hosts.txt")
    assert "hosts.txt" in refused.value.message
    assert refused.value.hint


def test_the_wheel_is_the_code_that_runs_here_and_its_record_is_right(
    tmp_path: Path,
) -> None:
    wheel = own_wheel(tmp_path)
    again = tmp_path / "again"
    again.mkdir()
    assert own_wheel(again).read_bytes() == wheel.read_bytes()
    with zipfile.ZipFile(wheel) as packed:
        names = packed.namelist()
        info = next(
            name.partition("/")[0] for name in names if name.endswith("/RECORD")
        )
        for row in packed.read(f"{info}/RECORD").decode().splitlines():
            name, digest, size = row.rsplit(",", 2)
            content = packed.read(name)
            if name.endswith("RECORD"):
                assert (digest, size) == ("", "")
                continue
            own = (
                base64.urlsafe_b64encode(hashlib.sha256(content).digest())
                .rstrip(b"=")
                .decode()
            )
            assert (digest, size) == (f"sha256={own}", str(len(content)))
        packed.extractall(tmp_path / "site")
    main = Path(corral.__file__).with_name("cli") / "main.py"
    assert (
        tmp_path / "site" / "corral" / "cli" / "main.py"
    ).read_bytes() == main.read_bytes()
    found = subprocess.run(
        [sys.executable, "-P", "-c", "import corral; print(corral.__file__)"],
        env={"PYTHONPATH": str(tmp_path / "site")},
        capture_output=True,
        text=True,
        check=True,
    )
    assert str(tmp_path / "site") in found.stdout


@dataclass
class Done:
    returncode: int
    stdout: str = ""
    stderr: str = ""


@dataclass
class Machine:
    """A host that does as it is told; it keeps what was typed, and the mark of what it
    has."""

    has: str = ""
    typed: list[str] = field(default_factory=list)

    async def run(self, command: str, **_: object) -> Done:
        self.typed.append(command)
        if 'cat "' in command and "corral.sha256" in command:
            return Done(0 if self.has else 1, self.has)
        return Done(0, "python3.11\n")


def test_a_machine_that_joins_a_ray_cluster_gets_the_heads_ray(tmp_path: Path) -> None:
    wheel = tmp_path / "corral-1-py3-none-any.whl"
    wheel.write_bytes(b"code")
    beside = needed_to_join(ClusterSettings(engine="ray"))
    assert needed_to_join(ClusterSettings()) == ()
    asked = Machine()
    asyncio.run(_installed(cast(Any, asked), wheel, beside))
    by_hash, own, ray = (line for line in asked.typed if "pip install" in line)
    assert "--require-hashes" in by_hash
    assert "--no-deps" in own
    assert wheel.name in own
    assert f"ray=={version('ray')}" in ray
    mark = f"{hashlib.sha256(b'code').hexdigest()} {beside[0]}"
    again, plain = Machine(has=mark), Machine(has=mark.split()[0])
    asyncio.run(_installed(cast(Any, again), wheel, beside))
    asyncio.run(_installed(cast(Any, plain), wheel, beside))
    assert not any("pip install" in line for line in again.typed)
    assert any("pip install" in line for line in plain.typed)
