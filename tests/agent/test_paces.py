"""What a shim keeps of its ranks' beats: the newest of all, and the pace of each."""

import pytest

from corral.agent.shim.state import ShimState


def beat(rank: int, step: int, **more: float) -> dict[str, object]:
    return {"type": "progress", "rank": rank, "step": step, **more}


def test_each_rank_keeps_its_own_pace_and_the_newest_beat_is_the_nodes() -> None:
    state = ShimState()
    state.take_progress(
        beat(5, 3, data_seconds=1.0, compute_seconds=2.0, wait_seconds=0.5),
        1.0,
        range(8),
    )
    state.take_progress(beat(4, 2, compute_seconds=2.0), 2.0, range(8))
    state.take_progress(
        beat(5, 4, data_seconds=1.5, compute_seconds=3.0, wait_seconds=0.6),
        3.0,
        range(8),
    )
    assert state.progress is not None
    assert state.progress["step"] == 4
    assert state.progress["ranks"] == [[4, 2, 0.0, 2.0, 0.0], [5, 4, 1.5, 3.0, 0.6]]


def test_a_beat_that_is_none_changes_nothing() -> None:
    state = ShimState()
    state.take_progress(beat(0, 1), 1.0, range(8))
    before = state.progress
    with pytest.raises((ValueError, KeyError, TypeError)):
        state.take_progress({"type": "progress", "rank": "x", "step": 2}, 2.0, range(8))
    assert state.progress == before
