"""Ranges of kept logs and searches in them: whole lines, bounded, the same however it
is read."""

import asyncio
from pathlib import Path

import pytest

from corral.api import log_ranges
from corral.api.kept_logs import LogKeeper, RankKey
from corral.api.log_ranges import SearchLine, range_of, search
from corral.domain.ids import AttemptNumber, JobId, UserName

KEY: RankKey = (JobId("j1"), AttemptNumber(1), 0)
LINES = [f"step {number} loss 0.{number:03d}" for number in range(1, 200)]
LINES[60] = "Traceback (most recent call last):"
LINES[130] = "x" * 300 + " TRACEBACK " + "y" * 2_000
TEXT = "".join(f"{line}\n" for line in LINES).encode()


@pytest.fixture
def keeper(tmp_path: Path) -> LogKeeper:
    made = LogKeeper(tmp_path, most_bytes=10**6)
    made.append(KEY, 0, TEXT)
    return made


def found_in(
    keeper: LogKeeper, text: str, limit: int = 1_000, most: int = 10**6
) -> list[str]:
    """Every match, over as many searches as its bounds ask for."""

    async def all_of_it() -> list[str]:
        lines, place = [], 0
        while place < keeper.end(KEY):
            one = await search(
                keeper, KEY, text, place=place, limit=limit, most_bytes=most
            )
            lines += [found.line for found in one.found]
            assert len(one.found) <= limit
            assert one.place > place
            place = one.place
        return lines

    return asyncio.run(all_of_it())


@pytest.mark.parametrize("piece", [64, 100, 1_000, 10**6])
@pytest.mark.parametrize("limit", [1, 7, 1_000])
def test_a_search_finds_each_line_once_however_it_is_cut(
    keeper: LogKeeper, monkeypatch: pytest.MonkeyPatch, piece: int, limit: int
) -> None:
    monkeypatch.setattr(log_ranges, "PIECE_BYTES", piece)
    assert found_in(keeper, "loss 0.19", limit=limit) == [
        line for line in LINES if "loss 0.19" in line
    ]
    assert found_in(keeper, "step", limit=limit) == [
        line for line in LINES if "step" in line
    ]


def test_a_search_takes_no_notice_of_case_and_cuts_long_lines(
    keeper: LogKeeper,
) -> None:
    first, second = found_in(keeper, "traceback")
    assert first == LINES[60]
    assert second == LINES[130][: log_ranges.LINE_LETTERS]
    assert found_in(keeper, "no such text") == []


def test_a_search_begins_at_the_oldest_byte_that_is_kept(tmp_path: Path) -> None:
    keeper = LogKeeper(tmp_path, most_bytes=2_000)
    place = 0
    for line in LINES:
        keeper.append(KEY, place, f"{line}\n".encode())
        place += len(line) + 1
    kept = found_in(keeper, "step")
    assert kept
    assert kept == [line for line in LINES if "step" in line][-len(kept) :]


def test_a_range_holds_whole_lines(keeper: LogKeeper) -> None:
    end = len(TEXT)
    part = asyncio.run(range_of(keeper, KEY, end - 50, end))
    assert part.data == TEXT[part.begin :]
    assert TEXT[part.begin - 1 : part.begin] == b"\n"
    earlier = asyncio.run(range_of(keeper, KEY, part.begin - 500, part.begin))
    assert earlier.data + part.data == TEXT[earlier.begin :]
    assert asyncio.run(range_of(keeper, KEY, 0, 10)).data == TEXT[:10]


def test_a_user_searches_once_at_a_time_and_others_do_not_wait() -> None:
    line, order = SearchLine(), []

    async def one(user: str, name: str, done: asyncio.Event) -> None:
        async with line.turn(UserName(user)):
            order.append(name)
            await done.wait()

    async def story() -> None:
        done = asyncio.Event()
        async with asyncio.TaskGroup() as group:
            for user, name in (("ann", "first"), ("ann", "second"), ("bob", "third")):
                group.create_task(one(user, name, done))
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            assert order == ["first", "third"]
            done.set()
        assert order == ["first", "third", "second"]

    asyncio.run(story())
    assert not line._locks
