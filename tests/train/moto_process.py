"""A real moto_server, where its program is installed: in an environment of its own, named
by CORRAL_MOTO_SERVER, or on the PATH (pip install 'moto[server]')."""

import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from http.client import HTTPConnection
from pathlib import Path

from tests.patience import PATIENCE_SECONDS, own_loopback
from tests.train.s3_server import Passing
from tests.train.support import wait_for


def moto_program() -> str | None:
    return os.environ.get("CORRAL_MOTO_SERVER") or shutil.which("moto_server")


@contextmanager
def moto_backend() -> Iterator[Passing]:
    """The requests go on to a moto_server with an empty bucket, named `bucket`."""
    program = moto_program()
    assert program is not None
    host = own_loopback()
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "moto.log"
        with log.open("wb") as output:
            process = subprocess.Popen(
                [program, "-H", host, "-p", "0"],
                stdout=output,
                stderr=subprocess.STDOUT,
            )
        try:
            wait_for(lambda: _port_in(log), "moto listens")
            port = _port_in(log)
            connection = HTTPConnection(host, port, timeout=PATIENCE_SECONDS)
            connection.request("PUT", "/bucket")
            assert connection.getresponse().status == 200
            connection.close()
            yield Passing(host, port)
        finally:
            process.kill()
            process.wait()


def _port_in(log: Path) -> int:
    match = re.search(r"Running on http://[\d.]+:(\d+)", log.read_text())
    return int(match[1]) if match else 0
