"""What status says of the head's own place."""

import errno
import shutil
from types import SimpleNamespace

import pytest

from corral.api.errors import bug
from tests.api.heads import Head


@pytest.mark.parametrize(("free_bytes", "is_told"), [(5 * 10**6, True), (10**9, False)])
def test_a_full_disk_is_told(
    head: Head, free_bytes: int, is_told: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = SimpleNamespace(total=10**10, used=10**10 - free_bytes, free=free_bytes)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: disk)
    with head.http() as http:
        warnings = http.get("/v1/status").json()["warnings"]
    told = [one for one in warnings if "is full (5 MB of 10 GB left)" in one]
    assert len(told) == is_told


def test_a_directory_that_is_gone_is_told(head: Head, monkeypatch: pytest.MonkeyPatch) -> None:
    def gone(path: object) -> None:
        raise FileNotFoundError(2, "No such file or directory")

    monkeypatch.setattr(shutil, "disk_usage", gone)
    with head.http() as http:
        warnings = http.get("/v1/status").json()["warnings"]
    assert any("cannot be looked at: No such file or directory" in one for one in warnings)


def test_a_full_disk_is_the_worlds_trouble_and_no_bug() -> None:
    full = bug(OSError(errno.ENOSPC, "No space left on device"), "id")
    assert (full.status_code, b"disk is full" in bytes(full.body)) == (503, True)
    assert bug(OSError(errno.EIO, "Input/output error"), "id").status_code == 500
