"""Reading of traces of requests: both forms, and refusals that name the line."""

import gzip
from pathlib import Path

import pytest

from corral.cli.replay_input import replayed
from corral.domain.errors import SpecInvalid
from corral.plan.service_replay.trace_request import TraceRequest
from corral.traces.request_traces import is_request_trace, read_request_trace

MOONCAKE = '{"timestamp": %s, "input_length": %s, "output_length": %s, "hash_ids": %s}'
AZURE = "TIMESTAMP,ContextTokens,GeneratedTokens"


def written(folder: Path, *lines: str) -> Path:
    path = folder / "trace"
    path.write_text("\n".join(lines) + "\n")
    return path


def test_lines_of_json_have_milliseconds_and_blocks(tmp_path: Path) -> None:
    path = written(
        tmp_path,
        MOONCAKE % (3000, 600, 5, [1, 2]),
        "",
        MOONCAKE % (1000, 512, 0, [1]),
    )
    assert read_request_trace(path, speed=2.0) == [
        TraceRequest(0.0, 512, 1, (1,)),
        TraceRequest(1.0, 600, 5, (1, 2)),
    ]


def test_csv_has_dates_and_no_blocks(tmp_path: Path) -> None:
    path = tmp_path / "trace.csv.gz"
    rows = (
        f"\ufeff{AZURE}",
        "2023-11-16 18:47:08.0687220,20,3",
        "2023-11-16 18:47:07.5687220,10,1",
    )
    with gzip.open(path, "wt") as file:
        file.write("\r\n".join(rows))
    assert read_request_trace(path) == [
        TraceRequest(0.0, 10, 1),
        TraceRequest(0.5, 20, 3),
    ]


def test_columns_may_be_in_any_order(tmp_path: Path) -> None:
    head = "GeneratedTokens,Other,TIMESTAMP,ContextTokens"
    path = written(tmp_path, head, "3,x,2024-05-10 00:00:00.009930+00:00,20")
    assert read_request_trace(path) == [TraceRequest(0.0, 20, 3)]


@pytest.mark.parametrize(
    ("lines", "reason"),
    [
        ([""], "line 1 is neither JSON nor a header of CSV"),
        ([AZURE], "it has no request"),
        (["TIMESTAMP,ContextTokens"], "does not contain GeneratedTokens"),
        ([MOONCAKE % (0, 5, 5, []), "{"], "line 2: invalid JSON"),
        (['{"a":' * 100_000], "line 1: invalid JSON"),
        ([MOONCAKE % (0, 5, 5, []), "3"], "line 2: it is not a JSON object"),
        (['{"timestamp": 0}'], "line 1: input_length is missing"),
        ([MOONCAKE % ("NaN", 5, 5, [])], "line 1: timestamp is nan, not a number"),
        ([MOONCAKE % (-1, 5, 5, [])], "line 1: timestamp is -1, which is negative"),
        ([MOONCAKE % ('"0"', 5, 5, [])], "line 1: timestamp is '0', not a number"),
        ([MOONCAKE % (0, 0, 5, [])], "line 1: input_length is 0: it must be from 1"),
        ([MOONCAKE % (0, 1.5, 5, [])], "line 1: input_length is 1.5, not a whole"),
        ([MOONCAKE % (0, 5, "true", [])], "line 1: output_length is True, not a"),
        ([MOONCAKE % (0, 5, -2, [])], "line 1: output_length is -2: it must be"),
        ([MOONCAKE % (0, 5, 10**12, [])], "output_length is 1,000,000,000,000"),
        ([MOONCAKE % (0, 5, 5, '["a"]')], "line 1: hash_ids is not a list of whole"),
        ([MOONCAKE % (0, 512, 5, [1, 2])], "line 1: 2 hash_ids are too many for 512"),
        ([AZURE, "2023-11-16 18:47:08,20"], "line 2: too few cells"),
        ([AZURE, "yesterday,20,3"], "line 2: TIMESTAMP is 'yesterday', not a date"),
        ([AZURE, "2023-11-16,20,3", "2023-11-16,x,3"], "line 3: ContextTokens is 'x'"),
        (
            [AZURE, "2023-11-16,20,3", "2023-11-16T00:00:00Z,20,3"],
            "line 3: TIMESTAMP has a time zone in some lines only",
        ),
        ([AZURE, "1023-11-16,20,3", "2023-11-16,20,3"], "spans more than 1e+09"),
    ],
)
def test_a_bad_trace_is_refused_with_its_line(
    tmp_path: Path, lines: list[str], reason: str
) -> None:
    with pytest.raises(SpecInvalid) as refused:
        read_request_trace(written(tmp_path, *lines))
    assert reason in refused.value.message
    assert "give" in refused.value.hint


def test_a_file_that_is_not_text_or_not_there_is_refused(tmp_path: Path) -> None:
    binary = tmp_path / "binary"
    binary.write_bytes(b"\xff\xfe{}")
    with pytest.raises(SpecInvalid, match="is not text"):
        read_request_trace(binary)
    with pytest.raises(SpecInvalid, match="there is no file") as refused:
        read_request_trace(tmp_path / "none")
    assert "timestamp (ms)" in refused.value.hint


def test_the_first_line_tells_traces_of_requests_from_logs_of_jobs() -> None:
    assert is_request_trace(MOONCAKE % (0, 5, 5, []))
    assert is_request_trace(AZURE)
    assert not is_request_trace("job_id,submit_s,duration_s,gpus")
    assert not is_request_trace('{"jobs": []}')


def test_a_replay_of_jobs_refers_a_trace_of_requests_to_the_planner(
    tmp_path: Path,
) -> None:
    path = written(tmp_path, AZURE, "2023-11-16,20,3")
    with pytest.raises(SpecInvalid, match="requests to a model") as refused:
        replayed(path, None, "1x8", own=False, dir=None)
    assert "corral plan serve MODEL --replay" in refused.value.hint
