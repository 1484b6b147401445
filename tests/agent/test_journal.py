"""A journal that was torn anywhere still says what it had said before."""

import errno
import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from corral.agent import journal
from corral.agent.journal import Journal

RECORDS = st.lists(
    st.fixed_dictionaries(
        {"type": st.sampled_from(["exit", "save"]), "text": st.text()}
    ),
    max_size=6,
)


@given(records=RECORDS, garbage=st.binary(max_size=40))
def test_torn_at_every_byte_it_keeps_every_whole_record(
    records: list[journal.Record], garbage: bytes
) -> None:
    lines = [journal.encode(record) for record in records]
    content = b"".join(lines)
    for torn in range(len(content) + 1):
        whole, at = [], 0
        for record, line in zip(records, lines, strict=True):
            at += len(line)
            if at <= torn:
                whole.append(record)
        assert journal.decode(content[:torn]) == whole
        assert journal.decode(content[:torn] + b"\0" * 64) == whole
    assert journal.decode(content + garbage)[: len(records)] == records


@given(records=RECORDS.filter(bool), data=st.data())
def test_a_changed_bit_ends_it_there(
    records: list[journal.Record], data: st.DataObject
) -> None:
    content = bytearray(b"".join(map(journal.encode, records)))
    at = data.draw(st.integers(0, len(content) - 1))
    content[at] ^= 1 << data.draw(st.integers(0, 7))
    read = journal.decode(bytes(content))
    assert read == records[: len(read)]
    assert len(read) < len(records)


def test_what_was_appended_is_read_also_after_a_tear_and_a_new_writer(
    tmp_path: Path,
) -> None:
    file = tmp_path / "journal"
    first = Journal.create(file)
    first.append({"number": 1})
    first.append({"number": 2})
    first.close()
    content = file.read_bytes().rstrip(b"\0")
    file.write_bytes(content[:-3])
    second = Journal.reopen(file)
    second.append({"number": 3})
    second.close()
    assert journal.read(file) == [{"number": 1}, {"number": 3}]
    assert journal.read(tmp_path / "none") is None


def test_one_is_made_once(tmp_path: Path) -> None:
    Journal.create(tmp_path / "journal").close()
    with pytest.raises(FileExistsError):
        Journal.create(tmp_path / "journal")


def test_a_record_that_finds_no_room_changes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    book = Journal.create(tmp_path / "journal", 256)

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "posix_fallocate", full)
    book.append({"exit": 1})
    with pytest.raises(OSError, match="No space"):
        book.append({"save": "x" * 300})
    with pytest.raises(OSError, match="No space"):
        book.append({"save": 1}, keep_bytes=256)
    book.append({"exit": 2})
    book.close()
    assert journal.read(tmp_path / "journal") == [{"exit": 1}, {"exit": 2}]
