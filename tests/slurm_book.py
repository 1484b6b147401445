"""Slurm's book of accounts for tests: a slurmdbd on a MariaDB of its own, in the
Slurm's folder."""

import socket
import subprocess
from typing import Final

from tests.slurm import Slurm, free_port, listens

DATABASE: Final = "database"


class Book:
    """What a Slurm's slurm.conf needs for it, and its two servers: they end with the
    Slurm."""

    def __init__(self) -> None:
        self.port = free_port()
        self._database_port = free_port()

    @property
    def lines(self) -> tuple[str, ...]:
        return (
            "AccountingStorageType=accounting_storage/slurmdbd",
            "AccountingStorageHost=127.0.0.1",
            f"AccountingStoragePort={self.port}",
            "AccountingStoragePass={place}/munge.sock",
            "AccountingStorageEnforce=limits,qos",
            "MinJobAge=2",
        )

    def start(self, slurm: Slurm) -> None:
        """Before slurmctld, which must find its cluster in it."""
        place = slurm.place / DATABASE
        made = subprocess.run(
            ["mariadb-install-db", "--no-defaults", "--user=root", "--skip-test-db",
             "--auth-root-authentication-method=normal", f"--datadir={place}"],
            capture_output=True, text=True,
        )  # fmt: skip
        assert made.returncode == 0, made.stderr
        slurm.begin(
            DATABASE, "mariadbd", "--no-defaults", "--user=root", f"--datadir={place}",
            f"--socket={place}/socket", f"--pid-file={place}/pid", "--bind-address=127.0.0.1",
            f"--port={self._database_port}", "--skip-grant-tables", "--innodb-buffer-pool-size=32M",
            "--innodb-flush-log-at-trx-commit=0",
        )  # fmt: skip
        slurm.until(lambda: listens(self._database_port), "the database")
        conf = slurm.place / "slurmdbd.conf"
        conf.write_text(self._conf(slurm))
        conf.chmod(0o600)
        slurm.begin("slurmdbd", "slurmdbd", "-D")
        slurm.until(lambda: listens(self.port), "slurmdbd")
        slurm.run("sacctmgr", "-i", "add", "cluster", slurm.name)
        slurm.run("sacctmgr", "-i", "add", "account", "team")
        slurm.run("sacctmgr", "-i", "add", "user", "root", "Account=team")

    def _conf(self, slurm: Slurm) -> str:
        lines = [
            "AuthType=auth/munge",
            f"AuthInfo=socket={slurm.place}/munge.sock",
            f"DbdHost={socket.gethostname().partition('.')[0]}",
            "DbdAddr=127.0.0.1",
            f"DbdPort={self.port}",
            "SlurmUser=root",
            f"LogFile={slurm.place}/slurmdbd.log",
            f"PidFile={slurm.place}/slurmdbd.pid",
            "StorageType=accounting_storage/mysql",
            "StorageHost=127.0.0.1",
            f"StoragePort={self._database_port}",
            "StorageUser=slurm",
            "StorageLoc=slurm",
        ]
        return "\n".join(lines) + "\n"
