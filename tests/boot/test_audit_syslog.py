"""Entries reach a syslog in their order; while it takes none they wait, and beyond a
bound are left out and counted."""

import asyncio
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from corral.boot.audit_syslog import AuditSyslog, message_of
from corral.boot.settings import ClusterSettings, syslog_target
from corral.domain.errors import SpecInvalid
from corral.domain.users import AuditEntry
from corral.store.memory_store import MemoryStore
from tests.store.rows import ANN


def entry(on: str = "j1", **more: object) -> AuditEntry:
    known = dict(
        at=1.5, by=ANN, token=None, what="job.cancel", on=on, kind="user", source="::1"
    )
    return AuditEntry(**(known | more))  # type: ignore[arg-type]


@pytest.fixture
def heard(tmp_path: Path) -> Iterator[socket.socket]:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as made:
        made.bind(str(tmp_path / "log"))
        made.setblocking(False)
        yield made


def sender(store: MemoryStore, tmp_path: Path) -> AuditSyslog:
    address = f"unix:{tmp_path / 'log'}"
    return AuditSyslog(
        store=store, address=address, head="h1", place=tmp_path / "place"
    )


def test_a_message_is_one_of_rfc_5424_whatever_an_entry_holds() -> None:
    said = message_of(
        entry('a"]\\\nb', code="forbidden", accepted=False, number=7), "h1"
    ).decode()
    assert said.startswith("<108>1 1970-01-01T00:00:01.500Z h1 corral ")
    assert ' audit [corral@32473 number="7" by="ann" kind="user" source="::1" ' in said
    assert 'on="a\\"\\]\\\\\ufffdb" result="refused forbidden"' in said
    assert message_of(entry(), "h1").startswith(b"<109>1 ")
    long = message_of(entry("\u00e9" * 3000, detail="\u00e9" * 3000), "h1")
    assert len(long) <= 2048
    assert long.decode().count("]") == 1


def test_entries_wait_while_nobody_takes_them_and_come_in_order(
    tmp_path: Path, heard: socket.socket
) -> None:
    async def scenario() -> None:
        store = MemoryStore()
        syslog = sender(store, tmp_path)
        for number in range(3):
            await store.record(entry(f"j{number}"))
        (tmp_path / "log").rename(tmp_path / "away")
        assert await syslog.send_after(0) == 0
        assert "the audit log cannot be sent to" in syslog.trouble()
        (tmp_path / "away").rename(tmp_path / "log")
        assert await syslog.send_after(0) == 3
        assert [f'on="j{at}"' in heard.recv(4096).decode() for at in range(3)] == [
            True
        ] * 3
        assert syslog.trouble() == ""
        assert "3" in (tmp_path / "place").read_text()
        syslog.close()

    asyncio.run(scenario())


def test_what_waits_beyond_the_bound_is_left_out_and_counted(
    tmp_path: Path, heard: socket.socket, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("corral.boot.audit_syslog.WAITING_MOST", 2)

    async def scenario() -> None:
        store = MemoryStore()
        syslog = sender(store, tmp_path)
        for number in range(5):
            await store.record(entry(f"j{number}"))
        assert await syslog.send_after(0) == 5
        assert 'on="j3"' in heard.recv(4096).decode()
        assert syslog.dropped == 3
        assert (
            "3 entries of the audit log were skipped and not sent" in syslog.trouble()
        )
        syslog.close()

    asyncio.run(scenario())


@pytest.mark.parametrize(
    "address",
    ["tcp://h:1", "udp://", "udp://h:99999", "unix:log", "h:514", "udp://h/x"],
)
def test_what_is_no_address_of_a_syslog_is_refused(address: str) -> None:
    with pytest.raises(SpecInvalid, match="not a valid address of a syslog"):
        ClusterSettings(audit_syslog=address)
    assert syslog_target("udp://h") == ("h", 514)
    assert syslog_target("unix:/dev/log") == "/dev/log"
