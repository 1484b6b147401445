"""Curves: what is put comes back, over restarts and thinning, and never more bytes than
allowed."""

import asyncio
import sqlite3
from collections.abc import Sequence
from math import isnan, nan
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from corral.domain.time_series import Curve, averaged, joined
from corral.store.series import SeriesFile
from corral.store.series.block import Block, block_of, packed, unpacked
from corral.store.series.file import FULL_SECONDS, KEPT_SECONDS

NOON = 1_800_000_000.0
FLOATS = st.floats(width=32, allow_nan=False, allow_infinity=False)


@given(
    st.lists(st.tuples(FLOATS, st.none() | FLOATS), min_size=1, max_size=70),
)
def test_a_block_comes_back_as_it_was(rows: list[tuple[float, float | None]]) -> None:
    block = Block(("a", "b"))
    for number, (a, b) in enumerate(rows):
        block.add(NOON + 10 * number, {"a": a, "b": b})
    curve = unpacked(packed(block))
    assert curve.times == [NOON + 10 * number for number in range(len(rows))]
    assert list(curve.fields["a"]) == [a for a, _ in rows]
    there = [None if isnan(value) else value for value in curve.fields["b"]]
    assert there == [b for _, b in rows]


def test_what_is_no_block_is_refused() -> None:
    good = packed(block_of(Curve(times=[NOON], fields={"a": [1.0]})))
    for bad in (b"", b"x" * 30, good[:-3], good[:16]):
        with pytest.raises(ValueError, match="not a valid block of a time series"):
            unpacked(bad)


def test_means_of_spans_leave_out_what_is_not_known() -> None:
    curve = Curve(times=[0, 10, 20, 40], fields={"a": [1.0, nan, 5.0, nan]})
    thin = averaged(curve, 20)
    assert list(thin.times) == [0, 20, 40]
    assert thin.fields["a"][:2] == [1.0, 5.0]
    assert isnan(thin.fields["a"][2])


def test_of_curves_that_overlap_the_first_is_right_and_fields_may_come_and_go() -> None:
    one = Curve(times=[0, 10], fields={"a": [1, 2]})
    two = Curve(times=[10, 20], fields={"b": [7, 8]})
    whole = joined([one, two])
    assert list(whole.times) == [0, 10, 20]
    assert whole.fields["a"][:2] == [1, 2]
    assert whole.fields["b"][2] == 8


def put_some(
    file: SeriesFile, *, since: float, count: int, key: str = "node:n1"
) -> None:
    for number in range(count):
        file.put(
            key, since + 10 * number, {"cpu": number / 100, "gpu0.power_watts": 600.0}
        )


def read(file: SeriesFile, **more: object) -> Curve:
    asked: dict[str, object] = {"since": 0.0, "until": NOON * 2} | more
    return asyncio.run(file.read("node:n1", **asked))  # type: ignore[arg-type]


def test_what_was_put_is_there_at_once_and_after_a_restart(tmp_path: Path) -> None:
    path = tmp_path / "series.db"
    file = SeriesFile(path)
    put_some(file, since=NOON, count=200)
    asyncio.run(file.keep(NOON + 2000))
    whole = read(file)
    assert len(whole.times) == 200
    assert list(read(file, fields=["cpu", "none"]).fields) == ["cpu"]
    assert len(read(file, since=NOON + 100, until=NOON + 190).times) == 10
    asyncio.run(file.close())
    again = SeriesFile(path)
    assert read(again) == Curve(
        times=whole.times, fields={k: list(v) for k, v in whole.fields.items()}
    )
    asyncio.run(again.close())


def test_a_crash_costs_five_minutes_at_most(tmp_path: Path) -> None:
    file = SeriesFile(tmp_path / "series.db")
    for minute in range(20):
        put_some(file, since=NOON + 60 * minute, count=6)
        asyncio.run(file.keep(NOON + 60 * minute + 59))
    after = SeriesFile(tmp_path / "series.db")  # of a head that never closed its own
    assert max(read(after).times) >= NOON + 20 * 60 - 300 - 60
    for one in (after, file):
        asyncio.run(one.close())


class Counted(SeriesFile):
    """Knows how many blocks each call has written down."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.written: list[int] = []

    def _write_blocks(self, blocks: Sequence[tuple[str, Block]], thin: int = 0) -> None:
        self.written.append(len(blocks))
        super()._write_blocks(blocks, thin)


def test_keys_have_their_turns_and_are_never_written_down_all_at_once(
    tmp_path: Path,
) -> None:
    """Nodes of a cluster begin in the same second; what waits for the file is held
    twice."""
    file = Counted(tmp_path / "series.db")
    for minute in range(30):
        for node in range(100):
            put_some(file, since=NOON + 60 * minute, count=6, key=f"node:n{node}")
        asyncio.run(file.keep(NOON + 60 * minute + 59))
    # each of them every five minutes, at the least
    assert sum(file.written) >= 100 * 30 / 5
    assert max(file.written) <= 50
    asyncio.run(file.close())


def test_a_copy_stays_as_it_was(tmp_path: Path) -> None:
    block = Block(("a",))
    for number in range(20):
        block.add(NOON + number, {"a": number})
        then = block.copy()
        block.add(NOON + number + 0.5, {"a": -1.0})
        assert then.rows[-1] == number
        assert len(then.rows) == len(then.times) == 2 * number + 1


def test_a_day_is_kept_in_full_a_month_thinned_and_no_more(tmp_path: Path) -> None:
    file = SeriesFile(tmp_path / "series.db")
    put_some(file, since=NOON, count=2 * 8640)  # two days
    now = NOON + 2 * 86400
    asyncio.run(file.keep(now))
    old = read(file, until=now - FULL_SECONDS - 6 * 3600)
    assert 17 * 12 <= len(old.times) <= 18 * 12 + 1  # each five minutes
    assert len(read(file, since=now - FULL_SECONDS).times) == 8640
    mean = sum(range(30)) / 30 / 100
    assert old.fields["cpu"][0] == pytest.approx(mean)
    asyncio.run(file.keep(NOON + KEPT_SECONDS + 3 * 86400))
    asyncio.run(file.keep(NOON + KEPT_SECONDS + 3 * 86400))
    assert len(read(file).times) == 0
    asyncio.run(file.close())


def test_the_oldest_go_when_the_bound_is_reached(tmp_path: Path) -> None:
    path = tmp_path / "series.db"
    file = SeriesFile(path, most_bytes=200_000)
    for number in range(40):
        for at in range(61):
            values = {
                f"v{i}": (i * 7919 + at * 104729 + number) % 1000 / 7 for i in range(40)
            }
            file.put(f"node:n{number % 4}", NOON + number * 700 + at * 10, values)
        asyncio.run(file.keep(NOON + number * 700 + 650))
    assert path.stat().st_size <= 250_000
    first = asyncio.run(file.read("node:n0", since=0, until=NOON * 2)).times
    assert min(first) > NOON
    asyncio.run(file.close())


def test_a_broken_file_is_set_aside_and_begun_anew(tmp_path: Path) -> None:
    path = tmp_path / "series.db"
    path.write_bytes(b"this is no database at all, by no means" * 100)
    file = SeriesFile(path)
    put_some(file, since=NOON, count=3)
    asyncio.run(file.close())
    assert path.with_suffix(".broken").exists()
    again = SeriesFile(path)
    assert len(read(again).times) == 3
    asyncio.run(again.close())


def test_a_disk_that_is_no_disk_ends_nothing_and_sets_nothing_aside(
    tmp_path: Path,
) -> None:
    path = tmp_path / "gone" / "series.db"
    file = SeriesFile(path)
    put_some(file, since=NOON, count=200)
    asyncio.run(file.keep(NOON + 2000))
    assert not path.with_suffix(".broken").exists()
    path.parent.mkdir()
    put_some(file, since=NOON + 2000, count=100)
    asyncio.run(file.keep(NOON + 3000))
    assert len(read(file, since=NOON + 2000).times) == 100
    asyncio.run(file.close())


@pytest.mark.parametrize("days_old", [0, 2])
def test_a_block_that_cannot_be_read_costs_itself_alone(
    tmp_path: Path, days_old: int
) -> None:
    path = tmp_path / "series.db"
    file = SeriesFile(path)
    put_some(file, since=NOON, count=200)
    asyncio.run(file.keep(NOON + 2000))
    with sqlite3.connect(path) as db:
        db.execute(
            "UPDATE blocks SET data = 'x' WHERE start = (SELECT MIN(start) FROM blocks)"
        )
    asyncio.run(file.keep(NOON + 2000 + days_old * 86400))
    left = read(file).times
    assert left
    assert NOON < min(left) <= NOON + 600
    assert max(left) >= NOON + 1800
    asyncio.run(file.close())


def test_a_clock_that_was_set_back_adds_nothing_until_it_has_caught_up(
    tmp_path: Path,
) -> None:
    file = SeriesFile(tmp_path / "series.db")
    put_some(file, since=NOON, count=3)
    put_some(file, since=NOON - 100, count=3)
    assert list(read(file).times) == [NOON, NOON + 10, NOON + 20]
    asyncio.run(file.close())


def test_spikes_outlive_the_means_that_take_their_place() -> None:
    fields = {"loss": [1.0, 3.0], "loss.low": [0.5, 2.0], "loss.high": [9.0, nan]}
    curve = averaged(Curve(times=[10.0, 20.0], fields=fields), 60.0)
    assert dict(curve.fields) == {"loss": [2.0], "loss.low": [0.5], "loss.high": [9.0]}
