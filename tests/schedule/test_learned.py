"""A live head learns from ended jobs what the columns of the traces learn from the
same."""

from types import FunctionType

import pytest
from hypothesis import given
from hypothesis import strategies as st

from corral.domain.ids import QueueName, UserName
from corral.schedule.arrays import hazard
from corral.schedule.arrays.hazard import LEVELS, edges
from corral.schedule.columns.prediction import (
    enter_kin,
    kin_of,
    learn_seconds,
    predicted_seconds,
)
from corral.schedule.columns.runtime_model import history_of, learn_end, relearn
from corral.schedule.prediction import similar_jobs
from corral.schedule.prediction.runtime_model import Class, Ended, Learned, level_of

ANN, BOB = UserName("ann"), UserName("bob")
CLASSES = [
    Class(QueueName(name), millis) for name in ("a", "b") for millis in (1000, 8000)
]
seconds = st.floats(0.0, 1e7)
ends = st.builds(
    Ended,
    job_class=st.sampled_from(CLASSES),
    user=st.sampled_from([ANN, BOB]),
    stem=st.sampled_from(["train", "eval"]),
    seconds=seconds,
)
lives = st.tuples(st.sampled_from(CLASSES), seconds)


def end(
    took: float, *, user: UserName = ANN, stem: str = "train", row: int = 0
) -> Ended:
    return Ended(job_class=CLASSES[row], user=user, stem=stem, seconds=took)


@given(seconds)
def test_a_level_holds_its_service(attained: float) -> None:
    level, bounds = level_of(attained), list(edges())
    assert bounds[level] <= attained
    assert level == LEVELS - 1 or attained < bounds[level + 1]


@given(st.lists(ends, max_size=30), st.lists(lives, max_size=8))
def test_ranks_are_those_of_the_columns(
    ended: list[Ended], live: list[tuple[Class, float]]
) -> None:
    history, learned = history_of(len(CLASSES)), Learned(ended, live)
    for one in ended:
        learn_end(history, CLASSES.index(one.job_class), level_of(one.seconds))
    for job_class, attained in live:
        start = CLASSES.index(job_class) * LEVELS
        for row in range(start, start + level_of(attained)):
            history.live[row] += 1
    relearn(history)
    for row, job_class in enumerate(CLASSES):
        for level, attained in enumerate(list(edges())[:LEVELS]):
            expected = float(history.rank[row * LEVELS + level])
            assert learned.rank_seconds(job_class, attained) == pytest.approx(
                expected, rel=1e-9
            )


@given(st.lists(ends, max_size=30), ends)
def test_kin_tell_what_they_tell_the_columns(ended: list[Ended], asks: Ended) -> None:
    rows: dict[object, int] = {}

    def groups(one: Ended) -> list[int]:
        size = one.job_class.gpu_millis
        keys = ((one.user, one.stem, size), (one.user, size), one.job_class, "all")
        return [
            rows.setdefault((place, key), len(rows)) for place, key in enumerate(keys)
        ]

    table = [groups(one) for one in (*ended, asks)]
    columns = kin_of(len(table), len(rows))
    enter_kin(columns, table)
    for job, one in enumerate(ended):
        learn_seconds(columns, job, one.seconds)
    told = Learned(ended).expected_seconds(asks.user, asks.stem, asks.job_class, None)
    expected = predicted_seconds(columns, len(ended), 0.0)
    assert told == (pytest.approx(expected, rel=1e-9) if ended else None)


def test_the_nearest_kin_speaks_and_nobody_outlasts_the_limit() -> None:
    learned = Learned([end(100.0), end(900.0, stem="eval"), end(50.0, user=BOB, row=1)])
    ask = learned.expected_seconds
    assert ask(ANN, "train", CLASSES[0], None) == 100.0
    assert ask(ANN, "train", CLASSES[0], 60.0) == 60.0
    assert ask(ANN, "other", CLASSES[0], None) == 500.0
    assert ask(BOB, "other", CLASSES[1], None) == 50.0
    assert Learned().expected_seconds(ANN, "train", CLASSES[0], None) is None
    assert Learned().expected_seconds(ANN, "train", CLASSES[0], 60.0) == 60.0


def test_where_short_jobs_end_who_has_run_long_ranks_behind_a_new_one() -> None:
    learned = Learned([end(5.0) for _ in range(20)] + [end(90_000.0) for _ in range(5)])
    fresh = learned.rank_seconds(CLASSES[0], 0.0)
    assert fresh < 200.0
    assert learned.rank_seconds(CLASSES[0], 600.0) > 10 * fresh


def test_a_live_table_waits_for_no_compiler() -> None:
    formulas = (
        hazard.overall_hazard,
        hazard.class_hazard,
        hazard.gittins_rank,
        similar_jobs.mean_after,
    )
    assert {type(one) for one in formulas} == {FunctionType}
