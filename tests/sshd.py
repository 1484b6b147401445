"""A real sshd on a host of the tests, and one who may enter by key."""

import os
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.hosts import Host
from tests.scenarios.house import until

PACKAGE = "openssh-server"
PROGRAM = "/usr/sbin/sshd"


def need_sshd() -> None:
    """As root with apt it is installed if need be; else this is skipped, and fails
    under CI."""
    if not Path(PROGRAM).exists() and os.geteuid() == 0 and shutil.which("apt-get"):
        for what in (["update"], ["install", "-y", "--no-install-recommends", PACKAGE]):
            command = ["apt-get", "-o", "DPkg::Lock::Timeout=300", *what]
            subprocess.run(command, capture_output=True, check=False)
    if Path(PROGRAM).exists():
        return
    why = f"no sshd is installed here: apt-get install {PACKAGE}"
    if os.environ.get("CI") == "true":
        pytest.fail(why)
    pytest.skip(why)


def key(file: Path) -> Path:
    """A fresh pair; the path of its private half."""
    words = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(file)]
    subprocess.run(words, check=True)
    return file


@contextmanager
def sshd(
    host: Host, folder: Path, admitted: Path, env: Mapping[str, object]
) -> Iterator[str]:
    """Serve until it is over; the line of known_hosts. Whoever enters finds this
    environment."""
    folder.mkdir()
    own = key(folder / "host_key")
    Path("/run/sshd").mkdir(exist_ok=True)  # it is left: sshd starts nowhere without it
    settings = {
        "HostKey": own,
        "AuthorizedKeysFile": admitted.with_suffix(".pub"),
        "PidFile": folder / "pid",
        "ListenAddress": host.address,
        "StrictModes": "no",
        "UsePAM": "no",
        "PermitRootLogin": "prohibit-password",
        "PasswordAuthentication": "no",
        "KbdInteractiveAuthentication": "no",
        "SetEnv": " ".join(f"{name}={value}" for name, value in env.items()),
        "Subsystem": "sftp internal-sftp",
    }
    file = folder / "sshd_config"
    file.write_text("".join(f"{name} {value}\n" for name, value in settings.items()))
    log = (folder / "log").open("wb")
    process = host.start([PROGRAM, "-D", "-e", "-f", str(file)], stderr=log)
    try:
        until(lambda: _answers(host), "sshd answers")
        yield f"{host.address} {own.with_suffix('.pub').read_text()}"
    finally:
        process.terminate()
        process.wait()
        log.close()


def _answers(host: Host) -> bool:
    probe = f"exec 3<>/dev/tcp/{host.address}/22"
    return host.run(["bash", "-c", probe]).returncode == 0
