"""What ranks that failed have printed last."""

from pathlib import Path
from time import process_time

from corral.agent.failure_output import MOST_RANKS, TAIL_BYTES, tail_of, tails_of
from corral.domain.attempt import Exit
from corral.domain.diagnosis import GAP


def test_the_end_of_a_log_goes_on_in_the_one_before_it_where_it_was_just_rotated(
    tmp_path: Path,
) -> None:
    log = tmp_path / "rank-0.log"
    log.write_text("and the end")
    rows = "".join(
        f"{chr(97 + at % 26)}{chr(97 + at // 26)} row\n" for at in range(600)
    )
    (tmp_path / "rank-0.log.1").write_text(rows * 2 + "the beginning ")
    tail = tail_of(log)
    assert tail.endswith("the beginning and the end")
    assert len(tail) == TAIL_BYTES
    assert tail_of(tmp_path / "rank-1.log") == ""


def test_only_ranks_that_failed_are_told_and_of_many_the_first_to_fail(
    tmp_path: Path,
) -> None:
    for rank in range(40):
        (tmp_path / f"rank-{rank}.log").write_text(f"rank {rank}")
    exits = [(rank, Exit(code=rank % 2, at=100.0 - rank)) for rank in range(40)]
    told = tails_of(tmp_path, exits)
    assert [rank for rank, _ in told] == list(range(40 - 2 * MOST_RANKS + 1, 40, 2))
    assert told[-1] == (39, "rank 39")


TRACEBACK = 'Traceback (most recent call last):\n  File "t.py", line 3, in f\n    g()\n'


def test_an_error_far_from_the_end_comes_before_it(tmp_path: Path) -> None:
    log = tmp_path / "rank-0.log"
    kinds = (
        "uploads",
        "metrics",
        "traces",
        "spans",
        "events",
        "gauges",
        "counts",
        "sums",
        "dumps",
    )
    chatter = [
        f"{kind} {number:x} {'abcdefghij'[number % 10]}"
        for kind in kinds
        for number in range(9)
    ]
    log.write_text(
        "step\n" * 9
        + TRACEBACK
        + "ValueError: no batch\n"
        + "\n".join(chatter * 2_000)
        + "\n"
    )
    assert log.stat().st_size > 1_000_000
    tail = tail_of(log)
    error, end = tail.split(GAP)
    assert error.startswith("Traceback")
    assert "ValueError: no batch" in error
    assert end.endswith(chatter[-1] + "\n")
    assert len(tail.encode()) <= TAIL_BYTES
    assert GAP not in tail_of(log, search_bytes=1024)


def test_rows_that_differ_in_their_numbers_only_are_left_out(tmp_path: Path) -> None:
    log = tmp_path / "rank-0.log"
    rows = "".join(
        f"retry {number} of 9999 in {number * 2} s\n" for number in range(2_000)
    )
    log.write_text(TRACEBACK + "KeyError: 'a'\n" + rows)
    tail = tail_of(log)
    assert "KeyError: 'a'" in tail
    assert GAP not in tail
    assert tail.count("retry") == 2


def test_a_traceback_with_many_frames_keeps_its_error(tmp_path: Path) -> None:
    log = tmp_path / "rank-0.log"
    names = [a + b + c for a in "abcdef" for b in "abcdef" for c in "abcdef"]
    frames = "".join(
        f'  File "{name}.py", line 3, in {name}\n    {name}()\n' for name in names
    )
    noise = "".join(f"{name} {name[::-1]} ended\n" for name in names * 20)
    log.write_text(TRACEBACK + frames + "RuntimeError: deep\n\n" + noise)
    error, gap, _ = tail_of(log).partition(GAP)
    assert gap
    assert "RuntimeError: deep" in error


def test_a_log_of_any_bytes_is_cut_in_time(tmp_path: Path) -> None:
    log = tmp_path / "rank-0.log"
    for unit in (
        b"\0",
        b"\n",
        b"1 ",
        b"Traceback (most recent call last)",
        b" panicked at \n",
    ):
        log.write_bytes(unit * (6_000_000 // len(unit)))
        began = process_time()
        assert len(tail_of(log).encode()) <= TAIL_BYTES + len(GAP)
        assert process_time() - began < 2.0


LINKED = "\nThe above exception was the direct cause of the following exception:\n\n"


def test_of_a_very_long_line_its_beginning_and_its_end_are_sent(tmp_path: Path) -> None:
    log = tmp_path / "rank-0.log"
    log.write_text(
        "config " + "a" * 200_000 + " end\n" + TRACEBACK + "KeyError: 'k'\n" + LINKED + TRACEBACK
        + "RuntimeError: batch " + "7, " * 50_000 + "last\n" + "[" + "x" * 90_000 + "]\n"
    )  # fmt: skip
    tail = tail_of(log)
    assert "KeyError: 'k'" in tail
    assert "RuntimeError: batch 7, " in tail
    assert "7, last" in tail
    assert " end\n" in tail
    assert len(tail.encode()) <= TAIL_BYTES


def test_of_errors_that_were_raised_of_each_other_the_first_is_sent_too(
    tmp_path: Path,
) -> None:
    log = tmp_path / "rank-0.log"
    deep = TRACEBACK + "".join(
        f'  File "/lib/python3.11/site-packages/{at:x}/m.py", line {at}, in f{at:x}\n    g()\n'
        for at in range(80)
    )
    chain = LINKED.join([deep + "KeyError: 'first'\n", deep + "OSError: middle\n"])
    log.write_text(
        "begin\n" + chain + LINKED + deep + "RuntimeError: last\n\nCleaned up.\n"
    )
    error, end = tail_of(log).split(GAP)
    assert "KeyError: 'first'" in error
    assert "RuntimeError: last" in error
    assert end.strip() == "Cleaned up."


def test_a_return_that_ends_a_name_is_shown(tmp_path: Path) -> None:
    log = tmp_path / "rank-0.log"
    log.write_bytes(b"1%\r2%\ra.sh: line 2: set: -\r: invalid option\n")
    assert tail_of(log) == "1%\n2%\na.sh: line 2: set: -\\r: invalid option\n"
