"""Logs that several processes share: the worker that failed first, its error and its
place survive the cut."""

from pathlib import Path
from time import process_time

import pytest

from corral.agent.failure_output import SHARED_READ_BYTES, TAIL_BYTES, tail_of, tails_of
from corral.domain.attempt import Exit
from corral.domain.diagnosis import GAP, LEFT_OUT, RankEnd
from corral.domain.failure_advice import NextStep
from corral.domain.failure_class import Failure, FailureKind
from corral.domain.ids import NodeId
from corral.health.gang_failure import failure_of

EXIT = Exit(code=1, at=1.0)
LOGS = Path(__file__).with_name("torchrun_logs")  # of torch 2.13, Gloo, 4 workers
WORKERS = 64


def failure_in(log: Path) -> Failure:
    """The failure as the head reads it: from what the agent sends of the log."""
    ((_, tail),) = tails_of(log.parent, [(0, EXIT)])
    assert len(tail.encode()) <= TAIL_BYTES
    failure = failure_of([RankEnd(rank=0, node=NodeId("n1"), exit=EXIT, tail=tail)])
    assert failure is not None
    return failure


@pytest.mark.parametrize(
    ("name", "kind", "rank", "quote", "place"),
    [
        ("key_error", FailureKind.PROGRAM, 3, "KeyError: 'wolf'", "/w/key.py:6"),
        ("value_error", FailureKind.PROGRAM, 1, "lr must be positive", "/w/value.py:4"),
        ("dtype_error", FailureKind.PROGRAM, 2, "the same dtype", "/w/dtype.py:11"),
        ("disk_full", FailureKind.DISK_FULL, 0, "unexpected pos", "/w/full.py:8"),
        ("before_rank_prefix", FailureKind.DATA, 2, "JSONDecode", "/w/untag.py:4"),
        ("no_interface", FailureKind.INTERFACE, 1, "address for: ib9", "/w/iface.py:2"),
        ("monitored_barrier", FailureKind.HANG, 2, "Rank 2 failed to pass", ""),
        ("silent_worker", FailureKind.UNKNOWN, 1, "", ""),
    ],
)
def test_the_first_failure_of_torchrun_is_read(
    name: str, kind: FailureKind, rank: int, quote: str, place: str, tmp_path: Path
) -> None:
    log = tmp_path / "rank-0.log"
    log.write_text((LOGS / f"{name}.txt").read_text())
    assert log.stat().st_size > TAIL_BYTES
    failure = failure_in(log)
    assert (failure.kind, failure.rank) == (kind, rank)
    assert quote in failure.quote
    assert failure.place.startswith(place)
    assert "printed nothing" not in failure.next


def traceback_of(label: str, message: str, frames: int = 30) -> str:
    rows = [
        f'  File "/opt/v/lib/python3.11/site-packages/m{at:x}/a.py", line {at}, in f{at}\n'
        f"    return g{at}(batch)"
        for at in range(frames)
    ]
    text = "\n".join(
        ["Traceback (most recent call last):", '  File "/w/t.py", line 7, in step']
        + ["    loss = model(batch)", *rows, message]
    )
    return "".join(f"{label}{row}\n" for row in text.split("\n"))


def report_of_torchrun(root: int) -> str:
    stopped = "".join(
        f"[{at}]:\n  time      : 2026-11-28_07:53:00\n  host      : n1\n"
        f"  rank      : {at} (local_rank: {at})\n  exitcode  : 1 (pid: {at})\n"
        "  error_file: <N/A>\n"
        for at in range(WORKERS)
        if at != root
    )
    return (
        traceback_of(
            "", "torch.distributed.elastic.multiprocessing.errors.ChildFailedError: "
        )
        + f"=====\nt.py FAILED\n-----\nFailures:\n{stopped}-----\n"
        "Root Cause (first observed failure):\n[0]:\n  time      : 2026-11-28_07:53:00\n"
        f"  host      : n1\n  rank      : {root} (local_rank: {root})\n"
        "  exitcode  : 1 (pid: 9)\n  error_file: <N/A>\n=====\n"
    )


def lost(rank: int) -> str:
    return traceback_of(
        f"[rank{rank}]: ",
        f"RuntimeError: [gloo/transport/tcp/pair.cc] Connection closed by peer [10.1.1.1]:{rank}",
    )


def test_of_many_workers_the_first_to_fail_is_kept_and_its_peers_are_shortened(
    tmp_path: Path,
) -> None:
    log = tmp_path / "rank-0.log"
    peers = "".join(lost(rank) for rank in range(WORKERS) if rank != 37)
    root = traceback_of("[rank37]: ", "ValueError: sample 91 has no label")
    log.write_text(root + peers + report_of_torchrun(37))
    failure = failure_in(log)
    assert (failure.kind, failure.rank) == (FailureKind.PROGRAM, 37)
    assert failure.quote == "ValueError: sample 91 has no label"
    assert failure.place.startswith("/w/t.py:7")
    tail = tail_of(log)
    assert tail.count("Traceback (most") <= 3
    assert LEFT_OUT in tail


def test_the_error_of_the_first_to_fail_is_found_before_megabytes_of_other_rows(
    tmp_path: Path,
) -> None:
    log = tmp_path / "rank-0.log"
    noise = "".join(
        f"[rank0]: saved part {at:x} of {chr(97 + at % 26) * (at % 31)}\n"
        for at in range(70_000)
    )
    assert len(noise) > 2 * SHARED_READ_BYTES
    log.write_text(
        traceback_of("[rank3]: ", "ValueError: no batch")
        + noise + lost(0) + lost(1) + report_of_torchrun(3)
    )  # fmt: skip
    failure = failure_in(log)
    assert (failure.kind, failure.rank) == (FailureKind.PROGRAM, 3)
    assert failure.quote == "ValueError: no batch"


def test_the_report_of_the_first_failure_is_kept_if_a_script_goes_on_after_it(
    tmp_path: Path,
) -> None:
    log = tmp_path / "rank-0.log"
    script = "".join(f"{chr(97 + at % 26) * 40} {at:x} copied\n" for at in range(400))
    log.write_text(lost(0) + lost(1) + report_of_torchrun(3) + script)
    assert failure_in(log).rank == 3
    assert tail_of(log).endswith(script[-500:])


def test_a_worker_whose_rows_are_gone_has_not_printed_nothing(tmp_path: Path) -> None:
    log = tmp_path / "rank-0.log"
    log.write_text(lost(0) + lost(1) + report_of_torchrun(3))
    failure = failure_in(log)
    assert (failure.kind, failure.rank) == (FailureKind.UNKNOWN, 3)
    assert failure.step == NextStep.WORKER_LOG


@pytest.mark.parametrize("label", ["[1,{}]<stderr>:", "{}: ", "(Worker pid=4{}) "])
def test_errors_of_any_labelled_process_are_kept_once(
    label: str, tmp_path: Path
) -> None:
    log = tmp_path / "rank-0.log"
    peers = "".join(
        traceback_of(label.format(at), f"ConnectionResetError: [Errno 104] peer {at}")
        for at in range(40)
        if at != 5
    )
    log.write_text(
        traceback_of(label.format(5), "IndexError: index 5 is out of range")
        + peers
        + "mpirun detected that one or more processes exited with non-zero status\n"
    )
    assert failure_in(log).quote.startswith("IndexError: index 5 is out of range")
    tail = tail_of(log)
    assert tail.count("Traceback (most") == 2
    assert tail.endswith("non-zero status\n")


def test_a_time_before_each_row_does_not_name_a_process(tmp_path: Path) -> None:
    log = tmp_path / "rank-0.log"
    log.write_text(
        traceback_of("10:00:01 ", "OSError: retried")
        + traceback_of("10:00:02 ", "KeyError: 'x'")
        + "".join(f"{chr(97 + at % 26) * 40} {at:x} ended\n" for at in range(400))
    )
    assert LEFT_OUT not in tail_of(log)


def test_of_workers_that_fail_in_different_ways_the_first_to_fail_has_precedence(
    tmp_path: Path,
) -> None:
    log = tmp_path / "rank-0.log"
    others = "".join(
        traceback_of(f"[rank{at}]: ", f"ValueError: sample {chr(97 + at) * 9} is empty")
        for at in range(25)
        if at != 24
    )
    log.write_text(
        others
        + traceback_of("[rank24]: ", "KeyError: 'the first'")
        + report_of_torchrun(24)
    )
    failure = failure_in(log)
    assert (failure.rank, failure.quote) == (24, "KeyError: 'the first'")
    assert failure.place.startswith("/w/t.py:7")


def test_an_error_without_a_label_is_sent_once(tmp_path: Path) -> None:
    log = tmp_path / "rank-0.log"
    log.write_text((LOGS / "before_rank_prefix.txt").read_text())
    assert tail_of(log).count("JSONDecodeError") == 1


def test_one_process_with_several_errors_keeps_its_last(tmp_path: Path) -> None:
    log = tmp_path / "rank-0.log"
    log.write_text(
        traceback_of("", "OSError: survived") + traceback_of("", "KeyError: 'last'")
        + "".join(f"{chr(97 + at % 26) * 40} {at:x} ended\n" for at in range(400))
    )  # fmt: skip
    error, gap, _ = tail_of(log).partition(GAP)
    assert gap
    assert "KeyError: 'last'" in error
    assert "OSError" not in error


@pytest.mark.parametrize(
    "unit",
    [
        '[rank{0}]: Traceback (most recent call last):\n[rank{0}]:   File "a", line 1, in f\n',
        '{0}: Traceback (most recent call last):\n{0}:   File "a", line 1, in f\n{0}: E: {0}\n',
        "[rank{0}]:[E12 a.cpp:1] Watchdog {0}\n",
        "Root Cause (first observed failure):\n{0}\n",
    ],
)
def test_a_shared_log_of_any_rows_is_cut_in_time(unit: str, tmp_path: Path) -> None:
    log = tmp_path / "rank-0.log"
    rows = "".join(unit.format(at % 300) for at in range(5_000_000 // len(unit)))
    log.write_text(rows + "ChildFailedError\n")
    began = process_time()
    assert len(tail_of(log).encode()) <= TAIL_BYTES
    assert process_time() - began < 2.0
