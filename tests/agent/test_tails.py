"""Of what a failed rank printed the end goes to the head, and of that what tells something."""

from pathlib import Path

from corral.agent.tails import MOST_RANKS, TAIL_BYTES, tail_of, tails_of
from corral.domain.attempt import Exit

FRAME = "frame #%d: c10d::ProcessGroupNCCL::watchdogHandler() + 0x8f0 (0x7f1 in /v/lib/x.so)\n"


def test_a_word_before_many_frames_of_cpp_is_kept(tmp_path: Path) -> None:
    log = tmp_path / "rank-0.log"
    frames = "".join(FRAME % number for number in range(120))
    log.write_text(f"step 1\nlast enqueued work: 7\n{frames}[rank3]:{FRAME % 9}what(): it hangs\n")
    assert log.stat().st_size > 2 * TAIL_BYTES
    assert tail_of(log) == "step 1\nlast enqueued work: 7\nwhat(): it hangs\n"


def test_the_end_is_cut_to_its_bytes_and_read_over_a_rotation(tmp_path: Path) -> None:
    log = tmp_path / "rank-0.log"
    log.with_name("rank-0.log.1").write_bytes(b"x" * 99_999 + b"before ")
    log.write_bytes(b"after \xff")
    tail = tail_of(log)
    assert tail.endswith("xbefore after \ufffd")
    assert len(tail.encode("utf-8", "surrogateescape")) <= TAIL_BYTES + 2
    assert tail_of(tmp_path / "none.log") == ""


def test_of_many_ranks_the_first_to_fail_are_told_and_no_clean_one(tmp_path: Path) -> None:
    exits = [(rank, Exit(code=rank % 2, at=100.0 - rank)) for rank in range(80)]
    for rank, _ in exits:
        (tmp_path / f"rank-{rank}.log").write_text(f"I am {rank}")
    told = tails_of(tmp_path, exits)
    assert [rank for rank, _ in told] == list(range(80 - 2 * MOST_RANKS + 1, 80, 2))
