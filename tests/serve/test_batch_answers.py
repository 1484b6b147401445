"""Answers on disk: each line has one record in the results, whatever was cut."""

import errno
import json
import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from corral.serve import batch_answers
from corral.serve.batch_answers import (
    ERRORS,
    EXPIRED,
    OUTPUT,
    AnswerLog,
    answer_files,
    answer_record,
    copy_results,
    error_record,
    publish_results,
    read_answers,
    remove_answer_files,
    results_of,
    write_results,
)
from tests.serve.batch_worlds import completion, records_of


def answer(number: int, text: str = "yes") -> dict[str, Any]:
    return answer_record(f"id-{number}", 200, "r", completion(text))


def append(folder: Path, *records: dict[str, Any]) -> Path:
    log = AnswerLog(folder)
    log.append(records)
    log.close()
    return log.path


def ids(path: Path) -> list[str]:
    return [record["custom_id"] for record in records_of(path)]


def test_a_record_that_was_cut_does_not_count(tmp_path: Path) -> None:
    path = append(tmp_path, answer(1), answer(2))
    whole = path.read_bytes()
    first = whole.index(b"\n") + 1
    for size in range(len(whole) + 1):
        path.write_bytes(whole[:size])
        assert len(read_answers(tmp_path).places) == (size >= first) + (
            size == len(whole)
        )


def test_the_answer_of_the_oldest_attempt_counts(tmp_path: Path) -> None:
    zombie = AnswerLog(tmp_path)
    append(tmp_path, answer(1, "second"), answer(2, "second"))
    zombie.append([answer(2, "first")])
    counts = write_results(tmp_path, tmp_path, ["id-1", "id-2"])
    records = records_of(tmp_path / OUTPUT)
    contents = [
        one["response"]["body"]["choices"][0]["message"]["content"] for one in records
    ]
    assert contents == ["second", "first"]
    assert counts.done == counts.finished == 2


def test_records_are_on_disk_before_append_returns(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = AnswerLog(tmp_path)
    synced: list[int] = []
    monkeypatch.setattr(os, "fsync", lambda file: synced.append(os.fstat(file).st_size))
    log.append([answer(1), answer(2)])
    assert synced == [log.path.stat().st_size]


def test_each_attempt_has_a_file_of_its_own(tmp_path: Path) -> None:
    logs = [AnswerLog(tmp_path) for _ in range(3)]
    assert answer_files(tmp_path) == [log.path for log in logs]


def test_results_are_in_the_order_of_the_lines_and_errors_are_apart(
    tmp_path: Path,
) -> None:
    refused = answer_record("id-2", 400, "r", {"error": {"message": "no"}})
    expired = error_record("id-4", EXPIRED, "late")
    append(tmp_path, answer(3), refused, answer(1), expired)
    results = publish_results(tmp_path, [f"id-{number}" for number in range(1, 6)])
    assert ids(results / OUTPUT) == ["id-1", "id-3"]
    assert ids(results / ERRORS) == ["id-2", "id-4"]
    work = tmp_path / "work"
    work.mkdir()
    counts = copy_results(results, work)
    assert (counts.done, counts.failed, counts.expired) == (2, 1, 1)
    tokens = (counts.prompt_tokens, counts.completion_tokens, counts.cached_tokens)
    assert tokens == (20, 6, 8)
    assert ids(work / ERRORS) == ["id-2", "id-4"]


def test_results_of_another_attempt_are_not_replaced(tmp_path: Path) -> None:
    append(tmp_path, answer(1, "first"))
    results = publish_results(tmp_path, ["id-1"])
    text = (results / OUTPUT).read_bytes()
    remove_answer_files(tmp_path)
    append(tmp_path, answer(1, "second"))
    assert publish_results(tmp_path, ["id-1"]) == results
    assert (results / OUTPUT).read_bytes() == text
    hidden = [path for path in tmp_path.iterdir() if path.name.startswith(".")]
    assert hidden == []


def test_results_that_were_not_whole_do_not_count(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    append(tmp_path, answer(1))

    def fail(*_: object) -> None:
        raise OSError(errno.ENOSPC, "no space left on device")

    monkeypatch.setattr(batch_answers, "_sync", fail)
    with pytest.raises(OSError, match="no space"):
        publish_results(tmp_path, ["id-1"])
    assert results_of(tmp_path) is None
    assert len(read_answers(tmp_path).places) == 1


@settings(max_examples=50)
@given(
    cuts=st.lists(st.integers(0, 200), max_size=5), sizes=st.lists(st.integers(0, 30))
)
def test_a_write_that_failed_in_the_middle_is_written_again_whole(
    tmp_path_factory: pytest.TempPathFactory, cuts: list[int], sizes: list[int]
) -> None:
    folder = tmp_path_factory.mktemp("log")
    log = AnswerLog(folder)
    records = [answer(number, "x" * size) for number, size in enumerate(sizes)]
    left = list(cuts)
    write = os.pwrite

    def fail_at_first(file: int, data: memoryview, offset: int) -> int:
        if not left:
            return write(file, data, offset)
        write(file, data[: left.pop()], offset)
        raise OSError(errno.ENOSPC, "no space left on device")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "pwrite", fail_at_first)
        for record in records:
            while True:
                try:
                    log.append([record])
                    break
                except OSError:
                    continue
    log.close()
    assert [json.loads(text) for text in log.path.read_text().splitlines()] == records
