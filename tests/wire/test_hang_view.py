"""A hang in the API's answers: whole for who may read the job's log, without places in
the program for others."""

from dataclasses import replace

from corral.domain.hang import HangAct
from corral.domain.hang_record import HangRecord, RankPlace
from corral.domain.ids import NodeId
from corral.wire.job_parts import HangView

RECORD = HangRecord(
    at=50.0,
    stalled_seconds=12.0,
    step=20,
    newest_step=20,
    act=HangAct.RESTART,
    why="",
    rank=2,
    node=NodeId("n2"),
    frame="train.py:18 in load",
    places=(
        RankPlace(
            frame="train.py:24 in step",
            ranks=(0, 1, 3),
            count=40,
            is_in_collective=True,
            operation="all_reduce",
        ),
        RankPlace(frame="train.py:18 in load", ranks=(2,), count=1),
        RankPlace(frame="", ranks=(50,), count=1),
    ),
)


def test_who_may_read_the_log_sees_where_all_ranks_stood() -> None:
    view = HangView.of(RECORD, whole=True)
    assert view is not None
    assert (view.rank, view.node, view.frame) == (2, "n2", "train.py:18 in load")
    assert view.places == [
        "ranks 0-1,3 and 37 more (in all_reduce): train.py:24 in step",
        "rank 2: train.py:18 in load",
        "rank 50: not known",
    ]
    assert "stands at train.py:18 in load; 40 other ranks wait for it" in view.text


def test_others_see_the_rank_and_its_node_alone() -> None:
    view = HangView.of(RECORD, whole=False)
    assert view is not None
    assert (view.rank, view.node, view.act) == (2, "n2", "restart")
    assert "train.py" not in view.model_dump_json()
    assert HangView.of(None, whole=True) is None


def test_a_rank_in_another_collective_does_not_wait_for_itself() -> None:
    inside = RankPlace(
        frame="train.py:24 in step", ranks=(0, 1, 2), count=3, is_in_collective=True
    )
    condition = "has begun another number of collectives"
    record = replace(RECORD, places=(inside,), condition=condition)
    assert record.text(whole=False).endswith(
        f"rank 2 on n2 {condition}; 2 other ranks wait for it in a collective"
    )
