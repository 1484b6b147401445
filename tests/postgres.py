"""A real server of PostgreSQL for tests: one a worker, a database of its own for each
store."""

import itertools
import os
import pwd
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import psycopg
import pytest

from corral.store.postgres import database
from tests.patience import PATIENCE_SECONDS

PACKAGE = "postgresql"
NOBODY_IS_ROOT = "postgres"  # the server refuses to run as root


def binaries() -> Path:
    """Where initdb and postgres are; as root with apt they are installed if need be."""
    found = _found()
    if found is None and os.geteuid() == 0 and shutil.which("apt-get"):
        for what in (["update"], ["install", "-y", "--no-install-recommends", PACKAGE]):
            command = ["apt-get", "-o", "DPkg::Lock::Timeout=300", *what]
            subprocess.run(command, capture_output=True, check=False)
        found = _found()
    if found is None:
        why = f"no PostgreSQL server is installed here: apt-get install {PACKAGE}"
        if os.environ.get("CI") == "true":
            pytest.fail(why)
        pytest.skip(why)
    return found


def _found() -> Path | None:
    on_path = shutil.which("initdb")
    known = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"), reverse=True)
    places = [Path(on_path)] if on_path else known
    return next(
        (place.parent for place in places if (place.parent / "postgres").exists()), None
    )


class Server:
    """One server in a directory of its own, which answers on a socket in it."""

    def __init__(self, place: Path, programs: Path, *, durable: bool = False) -> None:
        self.place, self.programs = place, programs
        self._fsync = "on" if durable else "off"
        self._numbers = itertools.count(1)
        self._process: subprocess.Popen[bytes] | None = None

    def _as_owner(self) -> dict[str, object]:
        if os.geteuid() != 0:
            return {}
        owner = pwd.getpwnam(NOBODY_IS_ROOT)
        return {"user": owner.pw_uid, "group": owner.pw_gid, "extra_groups": []}

    def make(self) -> None:
        if os.geteuid() == 0:
            owner = pwd.getpwnam(NOBODY_IS_ROOT)
            os.chown(self.place, owner.pw_uid, owner.pw_gid)
        options = [
            "-U",
            "corral",
            "-A",
            "trust",
            "-N",
            "--no-instructions",
            "--encoding=UTF8",
            "--locale=C",
        ]
        self._run([self.programs / "initdb", "-D", "data", *options])

    def _run(self, command: list[Path | str]) -> None:
        subprocess.run(command, cwd=self.place, check=True, capture_output=True,
                       **self._as_owner())  # type: ignore[call-overload]  # fmt: skip

    def start(self) -> None:
        """It answers when this returns. A kill of the server loses nothing that the
        kernel has."""
        # sessions of one that was killed let go of its memory first
        while not self._started():
            time.sleep(0.02)

    def _started(self) -> bool:
        settings = [
            f"fsync={self._fsync}",
            "listen_addresses=",
            f"unix_socket_directories={self.place}",
        ]
        command: list[Path | str] = [self.programs / "postgres", "-D", "data"]
        for setting in settings:
            command += ["-c", setting]
        with (self.place / "log").open("wb") as log:
            self._process = subprocess.Popen(
                command, cwd=self.place, stdout=log, stderr=log, **self._as_owner()
            )  # type: ignore[call-overload]
        while self._process.poll() is None:
            with suppress(psycopg.OperationalError):
                psycopg.connect(self.url("postgres"), connect_timeout=5).close()
                return True
        said = (self.place / "log").read_text()
        assert "still in use" in said, said
        return False

    def kill(self) -> None:
        """At once, its sessions included; what it had written stays with the kernel."""
        assert self._process is not None
        self._process.kill()
        self._process.wait()

    def stop(self) -> None:
        assert self._process is not None
        if self._process.poll() is None:
            self._process.send_signal(2)  # fast: sessions are ended
            self._process.wait()

    def url(self, name: str) -> str:
        return f"host={self.place} dbname={name} user=corral"

    def database(self) -> str:
        """The address of a new empty one."""
        name = f"d{next(self._numbers)}"
        with psycopg.connect(self.url("postgres"), autocommit=True) as connection:
            connection.execute(f"CREATE DATABASE {name} TEMPLATE template0")
        return self.url(name)


@contextmanager
def patient() -> Iterator[None]:
    """No session is ended, and nobody gives up waiting, while the machine has no time
    for this process: the stores that it opens meanwhile have none of a head's
    limits."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(database, "IDLE_MILLISECONDS", 0)
        patch.setattr(database, "LOCK_MILLISECONDS", int(PATIENCE_SECONDS * 1e3))
        yield


@contextmanager
def server(*, durable: bool = False) -> Iterator[Server]:
    """`durable`: what is acknowledged is on the disk, for measurements."""
    programs = binaries()
    with tempfile.TemporaryDirectory(prefix="corral-pg-", dir="/tmp") as place:
        one = Server(Path(place), programs, durable=durable)
        one.make()
        one.start()
        try:
            yield one
        finally:
            one.stop()
