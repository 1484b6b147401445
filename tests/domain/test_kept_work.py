"""Which kept work folders must go."""

from hypothesis import given
from hypothesis import strategies as st

from corral.domain.ids import UserName
from corral.domain.kept_work import (
    HIGH_WATER,
    DiskSpace,
    KeptWork,
    WorkLimits,
    folders_to_remove,
)
from corral.domain.units import DAY_SECONDS

EMPTY_DISK = DiskSpace(total_bytes=1000, used_bytes=0)
LIMITS = WorkLimits(days=7.0, user_bytes=100)
NOW = 30 * DAY_SECONDS


def work(
    name: str, age_days: float, size: int, owner: str = "ann", saves: bool = False
) -> KeptWork:
    ended_at = NOW - age_days * DAY_SECONDS
    return KeptWork(
        name=name, owner=UserName(owner), ended_at=ended_at, bytes=size, has_saves=saves
    )


def removed(*kept: KeptWork, disk: DiskSpace = EMPTY_DISK) -> list[str]:
    return [one.name for one in folders_to_remove(kept, LIMITS, disk, NOW)]


def test_folders_are_kept_for_their_days() -> None:
    assert removed(work("old", 7.1, 1), work("young", 6.9, 1)) == ["old"]


def test_beyond_the_size_of_a_user_the_oldest_go_and_those_of_others_stay() -> None:
    kept = [
        work("a", 1, 60),
        work("b", 2, 60),
        work("c", 3, 30),
        work("d", 4, 90, "bob"),
    ]
    assert removed(*kept) == ["c", "b"]


def test_a_full_disk_takes_the_oldest_of_all_users_first() -> None:
    kept = [work("a", 1, 40), work("b", 3, 40, "bob"), work("c", 2, 40)]
    assert removed(*kept, disk=DiskSpace(total_bytes=1000, used_bytes=941)) == [
        "b",
        "c",
    ]


def test_saves_stay_until_their_job_is_forgotten() -> None:
    full = DiskSpace(total_bytes=1000, used_bytes=1000)
    assert removed(work("a", 9, 500, saves=True), disk=full) == []


@given(
    ages=st.lists(st.tuples(st.floats(0, 10), st.integers(0, 80)), max_size=12),
    used=st.integers(0, 1000),
)
def test_no_more_goes_than_must(ages: list[tuple[float, int]], used: int) -> None:
    kept = [work(f"w{at:02}", age, size) for at, (age, size) in enumerate(ages)]
    disk = DiskSpace(total_bytes=1000, used_bytes=used)
    gone = folders_to_remove(kept, LIMITS, disk, NOW)
    left = [one for one in kept if one not in gone]
    assert sum(one.bytes for one in left) <= LIMITS.user_bytes
    freed = sum(one.bytes for one in gone)
    assert not left or used - freed <= 1000 * HIGH_WATER
    youngest = gone[-1] if gone else None
    if (
        youngest is not None
        and LIMITS.until(youngest.ended_at) >= NOW
        and youngest.bytes
    ):
        is_full = used - (freed - youngest.bytes) > 1000 * HIGH_WATER
        assert (
            is_full or sum(one.bytes for one in [*left, youngest]) > LIMITS.user_bytes
        )
