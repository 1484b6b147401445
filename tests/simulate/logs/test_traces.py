"""Logs of three kinds give the workload that they tell of; what is none of them is
refused."""

import gzip
import json
from pathlib import Path

import pytest

from corral.domain.errors import SpecInvalid
from corral.traces.traces import read_nodes, read_trace, sizes_of
from corral.traces.traces_sacct import clock_seconds

CSV = """gpus,submit_s,vc,duration_s,walltime_s,job_id
2,100,a,60,3600,x
0.5,40,b,0,,y
8,130,a,,,never-ended
,150,a,5,,no-gpus
"""
SWF = """; Version: 2.2
1 10 5 100 4 -1 -1 8 200 -1 1 3 1 -1 1 1 -1 -1
2 30 0 50 -1 -1 -1 2 -1 -1 1 3 1 -1 2 1 -1 -1
"""
SACCT = """JobID|Partition|Submit|Elapsed|Timelimit|AllocTRES|State
1|gpu|2026-01-01T00:00:00|1-00:00:10|2-00:00:00|cpu=8,gres/gpu:a100=4,gres/gpu=4|COMPLETED
1.batch|gpu|2026-01-01T00:00:00|1-00:00:10||cpu=8,gres/gpu=4|COMPLETED
2|gpu|2026-01-01T00:01:00|00:00:00|UNLIMITED|cpu=1,gres/gpu=1|CANCELLED
3|long|2026-01-01T00:02:00|02:03|UNLIMITED|gres/gpu:a100=1,gres/gpu:h100=2|COMPLETED
"""


def written(place: Path, text: str) -> Path:
    path = place / "log"
    path.write_text(text)
    return path


def test_csv_with_columns_in_any_order(tmp_path: Path) -> None:
    trace = read_trace(written(tmp_path, CSV))
    work = trace.workload
    assert (work.submits, work.durations, work.gpus) == ([0, 60], [1, 60], [1, 2])
    assert (work.queues, work.limits, work.names) == ([0, 1], [0, 3600], ["y", "x"])
    assert trace.skipped == 2


def test_swf_prefers_what_was_asked_for(tmp_path: Path) -> None:
    work = read_trace(written(tmp_path, SWF)).workload
    assert (work.submits, work.durations) == ([0, 20], [100, 50])
    assert (work.gpus, work.limits) == ([8, 2], [200, 0])


def test_sacct_without_steps_and_without_those_that_never_ran(tmp_path: Path) -> None:
    trace = read_trace(written(tmp_path, SACCT))
    work = trace.workload
    assert (work.submits, work.durations) == ([0, 120], [86_410, 123])
    assert (work.gpus, work.limits, trace.skipped) == ([4, 3], [172_800, 0], 1)


@pytest.mark.parametrize(
    "text", ["", "hello\n", "a,b\n1,2\n", CSV.splitlines()[0], "1 2 3\n"]
)
def test_what_is_no_log_of_jobs_is_refused(tmp_path: Path, text: str) -> None:
    with pytest.raises(SpecInvalid):
        read_trace(written(tmp_path, text))


HEAD = "submit_s,duration_s,gpus\n1,2,1\n"


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("submit_s,gpus\n1,2\n", "does not contain duration_s"),
        (HEAD + "1,2\n", "line 3: too few cells"),
        ("JobID|Submit|Elapsed\n1|Unknown|00:01:00\n", "line 2: Submit is 'Unknown'"),
        (HEAD + "1,soon,1\n", "line 3: duration_s is 'soon', not a number"),
        (HEAD + "-1,2,1\n", "line 3: submit_s is -1"),
        (HEAD + "1,-2,1\n", "line 3: duration_s is -2"),
        (HEAD + "1,2,-1\n", "line 3: gpus is -1"),
        (HEAD + "1,nan,1\n", "line 3: duration_s is nan"),
        (HEAD + "1,2,inf\n", "line 3: gpus is inf"),
        (HEAD + ",2,1\n", "line 3: submit_s is '', not a number"),
        (SWF + "3 1 2\n", "line 4: it has 3 fields"),
        (SACCT + "4|gpu\n", "line 6: it has 2 cells"),
        ('{"jobs": 5}\n', "a field has a value of the wrong type"),
        ('{"job": []}\n', r"log.* is not a log of jobs: the field 'jobs' is missing"),
        ('{"jobs": [{}]}\n', "the field 'started_at' is missing"),
        ("{\n", "is not a log of jobs"),
        ("submit_s,duration_s,gpus\n", "has no job"),
    ],
)
def test_a_bad_line_is_named(tmp_path: Path, text: str, why: str) -> None:
    with pytest.raises(SpecInvalid, match=why):
        read_trace(written(tmp_path, text))


def test_corrals_own_history(tmp_path: Path) -> None:
    shape = {"nodes": 2, "gpus_per_node": 4.0}
    job = {"id": "j1", "name": "a", "owner": "ann", "queue": "q", "shape": shape}
    ended = job | {"submitted_at": 50.0, "started_at": 60.0, "ended_at": 90.0}
    waits = job | {
        "id": "j2",
        "submitted_at": 55.0,
        "started_at": None,
        "ended_at": None,
    }
    trace = read_trace(
        written(tmp_path, json.dumps({"jobs": [waits, ended]}, indent=2))
    )
    work = trace.workload
    assert (work.submits, work.durations, work.gpus, work.names) == (
        [0],
        [30],
        [8],
        ["j1"],
    )
    assert (trace.queues, trace.skipped, work.users, work.kinds) == (
        ("q",),
        1,
        [0],
        [0],
    )


def test_parts_of_gpus_are_rounded_up_and_counted(tmp_path: Path) -> None:
    trace = read_trace(written(tmp_path, CSV))
    assert (trace.rounded, trace.queues) == (1, ("b", "a"))


def test_a_zipped_log_reads_as_the_plain_one(tmp_path: Path) -> None:
    zipped = tmp_path / "log.csv.gz"
    zipped.write_bytes(gzip.compress(CSV.encode()))
    assert read_trace(zipped) == read_trace(written(tmp_path, CSV))


def test_clusters_in_words_and_as_a_list(tmp_path: Path) -> None:
    assert sizes_of("2x8+1x4") == [8, 8, 4]
    nodes = read_nodes(written(tmp_path, "node_id,gpus,vc\na,8,v\nb,0,\nc,2\n"))
    assert nodes == [(8, "v"), (2, "")]
    for wrong in ("8", "x8", "0x8", "2x-1", ""):
        with pytest.raises(SpecInvalid):
            sizes_of(wrong)


def test_times_of_slurm() -> None:
    assert clock_seconds("2-03:04:05") == 2 * 86_400 + 3 * 3600 + 4 * 60 + 5
    assert clock_seconds("04:05.5") == 245.5
    assert clock_seconds("UNLIMITED") == clock_seconds("") == 0


def test_a_file_that_is_not_there_or_no_text_is_told_in_words(tmp_path: Path) -> None:
    with pytest.raises(SpecInvalid) as refused:
        read_trace(tmp_path / "absent.csv")
    assert refused.value.message == f"there is no file {tmp_path}/absent.csv"
    assert "corral ps --all --json" in refused.value.hint
    with pytest.raises(SpecInvalid) as refused:
        read_nodes(tmp_path)
    assert "cannot be read: Is a directory" in refused.value.message
    picture = tmp_path / "picture"
    picture.write_bytes(b"\x89PNG")
    with pytest.raises(SpecInvalid) as refused:
        read_trace(picture)
    assert "is not text" in refused.value.message
    assert "gzip" in refused.value.hint


@pytest.mark.parametrize("name", ["log.csv.gz", "log.csv", "log"])
def test_a_packed_log_is_read_whatever_its_name(name: str, tmp_path: Path) -> None:
    packed = tmp_path / name
    packed.write_bytes(gzip.compress(CSV.encode()))
    plain = tmp_path / "plain"
    plain.write_text(CSV)
    assert read_trace(packed) == read_trace(plain)
