"""Input files of batches: what is refused with the number of its line, and the order in
which lines are sent."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from corral.serve.batch_file import (
    MOST_FILE_BYTES,
    BatchFileInvalid,
    BatchRequests,
    BatchRules,
    in_prefix_order,
    prefix_of,
    read_batch,
)
from tests.serve.batch_worlds import CHAT, line, write_lines

MODELS = ("chat", "org/name")


def faults(tmp_path: Path, *lines: Any) -> list[str]:
    path = write_lines(tmp_path / "in.jsonl", lines)
    with pytest.raises(BatchFileInvalid) as caught:
        read_batch(path, BatchRules(models=MODELS))
    return [fault.text for fault in caught.value.faults]


@pytest.mark.parametrize(
    ("wrong", "text"),
    [
        ("{", "not valid JSON"),
        ("[1]", "expected a JSON object"),
        ('{"custom_id": NaN}', "not valid JSON: NaN"),
        ("[" * 100_000, "nested too deeply"),
        (line(2, custom_id=7), "custom_id must be text"),
        (line(2, custom_id=""), "custom_id must be text"),
        (line(2, method="GET"), "method must be POST"),
        (line(2, url="/v1/files"), 'the url "/v1/files" must be one of'),
        (line(2, url=["/v1/files"]), "must be one of"),
        (line(2, body=[]), "body must be a JSON object"),
        (line(2, body={"stream": True}), "body.stream must not be set"),
        (line(2, body={"model": "gpt"}), 'the model "gpt" is not one of the service'),
        (line(2, body={"model": 7}), "the model 7 is not one of the service"),
        (line(1), 'the custom_id "id-1" is also on line 1'),
    ],
)
def test_a_wrong_line_is_refused_with_its_number(
    tmp_path: Path, wrong: Any, text: str
) -> None:
    [fault] = faults(tmp_path, line(1), wrong, line(3))
    assert fault.startswith("line 2: ")
    assert text in fault


@pytest.mark.parametrize(
    ("wrong", "code", "param"),
    [
        ("{", "invalid_json_line", None),
        (line(1, body={"model": "m"}), "duplicate_custom_id", "custom_id"),
        (line(2, body={}), "missing_model", "body.model"),
        (line(2, body={"model": "n"}), "mismatched_model", "body.model"),
        (
            line(2, url="/v1/embeddings", body={"model": "m"}),
            "mismatched_endpoint",
            "url",
        ),
    ],
)
def test_a_file_of_one_model_names_code_line_and_field_of_each_fault(
    tmp_path: Path, wrong: Any, code: str, param: str | None
) -> None:
    first, last = (line(number, body={"model": "m"}) for number in (1, 3))
    path = write_lines(tmp_path / "in.jsonl", [first, wrong, last])
    rules = BatchRules(endpoint=CHAT, is_of_one_model=True)
    with pytest.raises(BatchFileInvalid) as caught:
        read_batch(path, rules)
    [fault] = caught.value.faults
    assert (fault.code, fault.line, fault.param) == (code, 2, param)


def test_all_wrong_lines_are_named_and_the_first_are_shown(tmp_path: Path) -> None:
    path = write_lines(tmp_path / "in.jsonl", ["{"] * 30)
    with pytest.raises(BatchFileInvalid) as caught:
        read_batch(path)
    assert len(caught.value.faults) == 30
    assert str(caught.value).splitlines()[-1] == "and 20 more"


def test_a_file_without_lines_is_refused(tmp_path: Path) -> None:
    assert faults(tmp_path, "", "  ") == ["the file has no lines"]


def test_more_lines_than_the_limit_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("corral.serve.batch_file.MOST_LINES", 2)
    path = write_lines(tmp_path / "in.jsonl", [line(1), line(2), line(3)])
    with pytest.raises(BatchFileInvalid, match="3 lines; at most 2") as caught:
        read_batch(path)
    assert [fault.code for fault in caught.value.faults] == ["too_many_requests"]


def test_text_that_is_not_utf_8_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "in.jsonl"
    path.write_bytes(b'{"custom_id": "\xff"}\n')
    with pytest.raises(BatchFileInvalid, match="line 1: not valid UTF-8"):
        read_batch(path)


def test_a_file_that_is_too_large_is_not_read(tmp_path: Path) -> None:
    path = tmp_path / "in.jsonl"
    with path.open("wb") as file:
        file.truncate(MOST_FILE_BYTES + 1)
    with pytest.raises(BatchFileInvalid, match="at most 200,000,000 fit"):
        read_batch(path)


def test_a_revision_of_a_model_and_no_model_are_accepted(tmp_path: Path) -> None:
    path = write_lines(
        tmp_path / "in.jsonl",
        [line(1, body={"model": "chat@3"}), line(2), line(3, body={"model": None})],
    )
    lines = read_batch(path, BatchRules(models=MODELS))
    requests = BatchRequests(path, "org/name")
    models = [json.loads(requests.request_of(one).body)["model"] for one in lines]
    assert models == ["chat@3", "org/name", "org/name"]


@pytest.mark.parametrize("end", ["\n", "\r\n", ""])
@pytest.mark.parametrize("begin", [b"", b"\xef\xbb\xbf"])
def test_each_request_is_read_back_as_it_was_written(
    tmp_path: Path, begin: bytes, end: str
) -> None:
    values = [line(1, "é \ud800"), line(2, "x" * 5000)]
    path = tmp_path / "in.jsonl"
    text = "\n\n".join(json.dumps(value) for value in values) + end
    path.write_bytes(begin + text.encode())
    lines = read_batch(path)
    requests = BatchRequests(path, "m")
    assert [one.number for one in lines] == [1, 3]
    for one, value in zip(lines, values, strict=True):
        request = requests.request_of(one)
        assert request.url == CHAT
        assert json.loads(request.body) == {"model": "m", **value["body"]}


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3)), min_size=1))
def test_lines_whose_prompts_begin_alike_follow_each_other(
    pairs: list[tuple[int, int]],
) -> None:
    from corral.serve.batch_file import BatchLine

    def body(system: int, document: int, number: int) -> dict[str, Any]:
        texts = (f"system {system} " * 100, f"document {document} " * 100, str(number))
        return {"messages": [{"role": "user", "content": text} for text in texts]}

    lines = [
        BatchLine(
            number=number,
            custom_id=str(number),
            offset=0,
            size_bytes=0,
            prefix=prefix_of(CHAT, body(*pair, number)),
        )
        for number, pair in enumerate(pairs)
    ]
    order = in_prefix_order(lines)
    assert sorted(one.number for one in order) == list(range(len(pairs)))
    for depth in (1, 2):
        heads = [pairs[one.number][:depth] for one in order]
        runs = [
            one
            for one, before in zip(heads, [None, *heads], strict=False)
            if one != before
        ]
        assert len(runs) == len(set(heads))
