"""The head's copy of a log: by offset, bounded, gaps said, and the same after a
restart."""

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from corral.api.kept_logs import LogKeeper, RankKey, whole_characters
from corral.domain.ids import AttemptNumber, JobId

KEY: RankKey = (JobId("j1"), AttemptNumber(1), 0)


def whole(keeper: LogKeeper, place: int = 0) -> bytes:
    text = b""
    while True:
        place, data = keeper.read(KEY, place, 7)
        if not data:
            return text
        text += data
        place += len(data)


@given(
    pieces=st.lists(st.binary(min_size=1, max_size=20), max_size=20),
    repeats=st.lists(st.integers(0, 30), max_size=20),
    restarts=st.sets(st.integers(0, 20)),
)
def test_repeats_and_restarts_change_nothing(
    tmp_path_factory: pytest.TempPathFactory,
    pieces: list[bytes],
    repeats: list[int],
    restarts: set[int],
) -> None:
    root = tmp_path_factory.mktemp("logs")
    keeper = LogKeeper(root, most_bytes=10_000)
    said = b""
    for number, piece in enumerate(pieces):
        if number in restarts:
            keeper = LogKeeper(root, most_bytes=10_000)
        back = min(len(said), repeats[number] if number < len(repeats) else 0)
        kept = keeper.append(KEY, len(said) - back, said[len(said) - back :] + piece)
        said += piece
        assert kept == len(said) == keeper.kept(KEY)
    assert whole(keeper) == said


def test_a_gap_is_said_as_a_line_and_the_log_goes_on_behind_it(tmp_path: Path) -> None:
    keeper = LogKeeper(tmp_path, most_bytes=10_000)
    keeper.append(KEY, 0, b"one\n")
    assert keeper.append(KEY, 1004, b"two\n") == 1008
    for reader in (keeper, LogKeeper(tmp_path, most_bytes=10_000)):
        assert reader.kept(KEY) == 1008
        assert reader.append(KEY, 1004, b"two\n") == 1008
        text = whole(reader)
        assert text.startswith(b"one\n\n[corral] 1,000 bytes are missing")
        assert text.endswith(b"\ntwo\n")


def test_the_oldest_goes_when_the_cap_is_reached_and_the_newest_stays(
    tmp_path: Path,
) -> None:
    keeper = LogKeeper(tmp_path, most_bytes=100)
    said = b""
    for number in range(100):
        line = f"line {number}\n".encode()
        keeper.append(KEY, len(said), line)
        said += line
    disk = sum(path.stat().st_size for path in tmp_path.rglob("*.log*"))
    assert disk <= 120
    for reader in (keeper, LogKeeper(tmp_path, most_bytes=100)):
        rest = whole(reader)
        assert said.endswith(rest)
        assert len(rest) >= 50
        assert reader.kept(KEY) == len(said)


def test_what_is_being_read_is_read_to_its_end_whatever_rotation_takes(
    tmp_path: Path,
) -> None:
    keeper = LogKeeper(tmp_path, most_bytes=200)
    said = b"".join(b"line %04d\n" % number for number in range(90))
    with keeper.reading(KEY) as reading:
        seen = b""
        # who reads at the pace of writing, a whole file behind
        for at in range(0, len(said), 10):
            keeper.append(KEY, at, said[at : at + 10])
            if at >= 150:
                place, data = reading.read(len(seen), 10)
                assert place == len(seen)
                seen += data
        # for whoever comes now
        assert keeper.read(KEY, len(seen) - 10, 10)[0] > len(seen) - 10
    assert said.startswith(seen)
    assert len(seen) == len(said) - 150


@pytest.mark.parametrize("cut", [1, 2])
def test_a_rotation_that_was_cut_short_loses_and_repeats_nothing(
    tmp_path: Path, cut: int
) -> None:
    keeper = LogKeeper(tmp_path, most_bytes=40)
    keeper.append(KEY, 0, b"0123456789012345678\n")  # rotates: 20 bytes are half
    keeper.append(KEY, 20, b"abc\n")
    log = tmp_path / "j1" / "1" / "rank-0.log"
    os.replace(log, log.with_name("rank-0.log.1"))  # the next rotation's first step
    if cut == 2:
        (tmp_path / "j1/1/rank-0.json.new").write_text("{")
    again = LogKeeper(tmp_path, most_bytes=40)
    assert again.kept(KEY) == 24
    assert again.append(KEY, 24, b"def\n") == 28
    assert whole(again) == b"abc\ndef\n"


def test_tail_finds_the_last_lines_across_the_two_files(tmp_path: Path) -> None:
    keeper = LogKeeper(tmp_path, most_bytes=40)
    for number in range(8):
        keeper.append(KEY, number * 7, f"line {number}\n".encode())
    for lines in (1, 2, 3):
        place = keeper.tail(KEY, lines)
        assert whole(keeper, place).count(b"\n") == lines
    assert whole(keeper, keeper.tail(KEY, 0)) == b""


@given(st.text(max_size=30), st.integers(0, 60))
def test_whole_characters_cuts_only_between_characters(text: str, cut: int) -> None:
    data = text.encode(errors="replace")[:cut]
    whole = whole_characters(data)
    data[:whole].decode()
    assert len(data) - whole < 4
