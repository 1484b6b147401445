"""What ranks that failed have printed last."""

from pathlib import Path

from corral.agent.tails import MOST_RANKS, TAIL_BYTES, tail_of, tails_of
from corral.domain.attempt import Exit


def test_the_end_of_a_log_goes_on_in_the_one_before_it_where_it_was_just_rotated(
    tmp_path: Path,
) -> None:
    log = tmp_path / "rank-0.log"
    log.write_text("and the end")
    (tmp_path / "rank-0.log.1").write_text("x" * TAIL_BYTES + "the beginning ")
    tail = tail_of(log)
    assert tail.endswith("the beginning and the end")
    assert len(tail) == TAIL_BYTES
    assert tail_of(tmp_path / "rank-1.log") == ""


def test_only_ranks_that_failed_are_told_and_of_many_the_first_to_fail(tmp_path: Path) -> None:
    for rank in range(40):
        (tmp_path / f"rank-{rank}.log").write_text(f"rank {rank}")
    exits = [(rank, Exit(code=rank % 2, at=100.0 - rank)) for rank in range(40)]
    told = tails_of(tmp_path, exits)
    assert [rank for rank, _ in told] == list(range(40 - 2 * MOST_RANKS + 1, 40, 2))
    assert told[-1] == (39, "rank 39")
