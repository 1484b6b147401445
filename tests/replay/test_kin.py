"""How long a job runs is drawn from its kin, else from its limit, else it is a wide
guess."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from corral.domain.ids import JobId, QueueName, UserName
from corral.domain.resources import Resources, Shape
from corral.domain.run_history import Ran
from corral.replay.rng import dice_of, roll
from corral.replay.runtime_history import KEPT, LONGEST_SECONDS, RuntimeHistory

ANN = UserName("ann")
KIND = (ANN, "train", 1000)
DRAWS = 400


def ran(seconds: float, number: int = 0) -> Ran:
    return Ran(
        job=JobId(f"j{number}"), user=ANN, queue=QueueName("q"), stem="train",
        shape=Shape(nodes=1, resources=Resources(gpu_millis=1000)), priority=0, preemptible=False,
        seconds=seconds, submitted_at=0.0, ended_at=seconds,
    )  # fmt: skip


def drawn(
    kin: RuntimeHistory,
    ran_seconds: float = 0.0,
    limit_seconds: float | None = None,
    *,
    doubt: bool = True,
) -> list[float]:
    dice = dice_of(7)
    alike = [part / DRAWS if doubt else 0.0 for part in range(DRAWS)]
    return sorted(
        kin.draw(KIND, ran_seconds, limit_seconds, one, float(roll(dice)))
        for one in alike
    )


def test_one_with_kin_runs_as_long_as_one_of_them() -> None:
    found = drawn(RuntimeHistory([ran(10.0), ran(20.0), ran(90.0)]), doubt=False)
    assert set(found) == {10.0, 20.0, 90.0}


def test_one_that_has_run_for_a_while_ends_as_those_did_that_ran_longer() -> None:
    assert set(
        drawn(RuntimeHistory([ran(10.0), ran(20.0), ran(90.0)]), 10.0, doubt=False)
    ) == {
        20.0,
        90.0,
    }


@pytest.mark.parametrize(("kin", "like_them"), [(0, 0.0), (1, 0.91), (4, 0.975)])
def test_the_more_kin_have_ended_the_rarer_it_goes_by_its_limit(
    kin: int, like_them: float
) -> None:
    found = drawn(RuntimeHistory(ran(10.0) for _ in range(kin)), 0.0, 100_000.0)
    assert found.count(10.0) == pytest.approx(like_them * DRAWS, abs=2)


def test_who_has_outrun_all_kin_has_its_limit_left() -> None:
    found = drawn(RuntimeHistory([ran(10.0)]), 20.0, 120.0)
    assert min(found) >= 20.0
    assert found[DRAWS * 8 // 10 :] == [120.0] * (DRAWS * 2 // 10), (
        "a quarter run to their limit"
    )
    assert found[DRAWS // 10] < 22.0, "and the others end anywhere before, by ratio"
    assert 25.0 < found[DRAWS // 2] < 60.0


def test_without_kin_and_limit_half_run_more_than_twice_as_long_as_they_have() -> None:
    found = drawn(RuntimeHistory(), 1000.0)
    assert 1600.0 < found[DRAWS // 2] < 2400.0
    assert 3200.0 < found[DRAWS * 3 // 4] < 4800.0


def test_kin_are_of_one_user_name_and_size() -> None:
    kin = RuntimeHistory([ran(10.0)])
    assert kin.knows(KIND)
    assert not kin.knows(KIND, 10.0)
    for other in (
        (UserName("bob"), "train", 1000),
        (ANN, "eval", 1000),
        (ANN, "train", 2000),
    ):
        assert not kin.knows(other)


def test_only_the_newest_are_kept() -> None:
    kin = RuntimeHistory([ran(1.0), *[ran(50.0)] * KEPT])
    assert set(drawn(kin, doubt=False)) == {50.0}


@given(
    seconds=st.lists(st.floats(0, 1e6), max_size=9),
    so_far=st.floats(0, 1e6),
    limit=st.none() | st.floats(1, 1e6),
    alike=st.floats(0, 1, exclude_max=True),
    chance=st.floats(0, 1),
)
def test_no_job_runs_less_than_it_has_or_more_than_it_may(
    seconds: list[float],
    so_far: float,
    limit: float | None,
    alike: float,
    chance: float,
) -> None:
    kin = RuntimeHistory(ran(one) for one in seconds)
    found = kin.draw(KIND, so_far, limit, alike, chance)
    assert found >= so_far
    assert found <= max(
        [so_far, *([limit] if limit else [LONGEST_SECONDS, 2 * so_far, *seconds])]
    )
