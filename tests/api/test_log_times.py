"""Lines of a log have the time at which they reached the head, within a second and
bounded."""

from pathlib import Path

import pytest

from corral.api import log_times
from corral.api.kept_logs import LogKeeper, RankKey
from corral.api.log_times import Stamp, add_stamp, read_stamps, times_of_lines
from corral.domain.ids import AttemptNumber, JobId

KEY: RankKey = (JobId("j1"), AttemptNumber(1), 0)


class Wall:
    """A clock that the test sets."""

    at = 1000.0

    def __call__(self) -> float:
        return self.at


def say(keeper: LogKeeper, text: bytes) -> None:
    keeper.append(KEY, keeper.kept(KEY), text)


def times_of(keeper: LogKeeper, begin: int = 0) -> list[float | None]:
    begin, data = keeper.read(KEY, begin, 10_000)
    return keeper.times(KEY, begin, data)


def test_each_line_has_the_time_of_its_first_byte(tmp_path: Path) -> None:
    wall = Wall()
    keeper = LogKeeper(tmp_path, most_bytes=10_000, wall=wall)
    say(keeper, b"a\nbeg")
    wall.at = 1005.0
    say(keeper, b"un\nc\n")
    wall.at = 1005.5  # within a second of the last stamp
    say(keeper, b"d\n")
    assert times_of(keeper) == [1000.0, 1000.0, 1005.0, 1005.0, 1005.0]
    again = LogKeeper(tmp_path, most_bytes=10_000, wall=wall)
    assert times_of(again) == times_of(keeper)
    assert times_of(again, 5) == [1005.0, 1005.0, 1005.0, 1005.0]


def test_a_log_of_before_there_were_stamps_has_no_times(tmp_path: Path) -> None:
    say(LogKeeper(tmp_path, most_bytes=10_000), b"old\n")
    keeper = LogKeeper(tmp_path, most_bytes=10_000, wall=Wall())
    say(keeper, b"new\n")
    assert times_of(keeper) == [None, 1000.0, 1000.0]


def test_a_clock_that_was_set_back_stamps_anew(tmp_path: Path) -> None:
    wall = Wall()
    keeper = LogKeeper(tmp_path, most_bytes=10_000, wall=wall)
    say(keeper, b"a\n")
    wall.at = 500.0
    say(keeper, b"b\n")
    assert times_of(keeper)[:2] == [1000.0, 500.0]


def test_stamps_go_with_the_bytes_that_rotation_drops(tmp_path: Path) -> None:
    wall = Wall()
    keeper = LogKeeper(tmp_path, most_bytes=40, wall=wall)
    for _ in range(30):
        wall.at += 10.0
        say(keeper, b"0123456\n")
    stamps = read_stamps(tmp_path / "j1" / "1" / "rank-0.times")
    assert stamps[0].place <= keeper.oldest(KEY)
    assert len(stamps) <= 7
    assert times_of(keeper)[-2] == wall.at


def test_stamps_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_times, "MOST_STAMPS", 8)
    file = tmp_path / "times"
    for number in range(50):
        add_stamp(file, Stamp(number, float(number)))
        assert len(read_stamps(file)) < 8
    assert read_stamps(file)[0] == Stamp(0, 0.0)


def test_a_stamp_cut_short_is_passed_over(tmp_path: Path) -> None:
    file = tmp_path / "times"
    add_stamp(file, Stamp(0, 1.0))
    file.write_bytes(file.read_bytes() + b"half")
    assert read_stamps(file) == [Stamp(0, 1.0)]
    assert times_of_lines([], 0, b"a\nb") == [None, None]
