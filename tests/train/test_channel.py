"""The line between a rank and its shim."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from corral.train.shim_channel import Channel
from tests.patience import PATIENCE_SECONDS
from tests.train.support import FakeShim, shim_at, wait_for


@pytest.fixture
def lines() -> Iterator[list[Channel]]:
    made: list[Channel] = []
    yield made
    for line in made:
        line.close(0.2)


def dial(
    lines: list[Channel], path: Path, committed: list[int] | None = None
) -> Channel:
    def take(steps: list[int], _pinned: object) -> None:
        (committed if committed is not None else []).extend(steps)

    line = Channel(str(path), 3, take)
    lines.append(line)
    return line


def one_save(step: int) -> dict[str, Any]:
    return {"step": step, "path": f"/saves/{step}"}


def test_it_says_hello_and_what_it_is_told_to(
    lines: list[Channel], tmp_path: Path
) -> None:
    with shim_at(tmp_path / "s") as shim:
        line = dial(lines, shim.path)
        line.progress({"step": 7})
        line.save(one_save(5))
        assert line.flush(PATIENCE_SECONDS)
        wait_for(lambda: len(shim.messages) == 3, "all has come")
    assert shim.of("hello") == [{"type": "hello", "rank": 3}]
    assert shim.of("progress") == [{"type": "progress", "rank": 3, "step": 7}]
    assert shim.of("save")[0]["step"] == 5


def test_a_path_longer_than_a_socket_address_is_reached(
    lines: list[Channel], tmp_path: Path
) -> None:
    deep = tmp_path / ("a" * 90) / ("b" * 90)
    deep.mkdir(parents=True)
    with shim_at(deep / "shim.sock") as shim:
        dial(lines, shim.path)
        wait_for(lambda: shim.of("hello"), "hello")


def test_saves_wait_for_a_shim_that_is_away_and_only_the_newest_progress(
    lines: list[Channel], tmp_path: Path
) -> None:
    path = tmp_path / "s"
    line = dial(lines, path)
    for step in range(5):
        line.progress({"step": step})
        line.save(one_save(step))
    assert not line.flush(0.01)
    with shim_at(path) as shim:
        assert line.flush(PATIENCE_SECONDS)
        wait_for(lambda: shim.of("progress"), "progress")
    assert [one["step"] for one in shim.of("save")] == [0, 1, 2, 3, 4]
    assert [one["step"] for one in shim.of("progress")] == [4]


def test_it_dials_again_when_the_shim_hangs_up(
    lines: list[Channel], tmp_path: Path
) -> None:
    path = tmp_path / "s"
    line = dial(lines, path)
    with shim_at(path) as first:
        wait_for(lambda: first.of("hello"), "hello")
    with shim_at(path) as second:
        line.save(one_save(9))
        wait_for(lambda: second.of("save"), "the save")
        assert second.of("hello")


def test_requests_arrive_and_what_is_not_understood_is_passed_over(
    lines: list[Channel], tmp_path: Path
) -> None:
    committed: list[int] = []
    with shim_at(tmp_path / "s") as shim:
        line = dial(lines, shim.path, committed)
        wait_for(lambda: shim.of("hello"), "hello")
        shim.tell({"type": "news", "of": "a later version"})
        shim.tell({"type": "committed", "steps": "many"})
        shim.tell({"kind": "stop"})
        shim.tell({"type": "committed", "steps": [10, 20]})
        shim.tell({"type": "stop", "save": True, "grace_seconds": 12, "why": "suspend"})
        wait_for(lambda: line.stop, "the request")
    assert committed == [10, 20]
    assert line.stop is not None
    assert (line.stop.save, line.stop.grace_seconds, line.stop.why) == (
        True,
        12.0,
        "suspend",
    )


def test_a_stream_of_no_message_is_cut_off(
    lines: list[Channel], tmp_path: Path
) -> None:
    with shim_at(tmp_path / "s") as shim:
        dial(lines, shim.path)
        wait_for(lambda: shim.of("hello"), "hello")
        babble(shim)
        wait_for(lambda: len(shim.of("hello")) > 1, "it dials anew")


def babble(shim: FakeShim) -> None:
    for line in list(shim.lines):
        try:
            line.sendall(b"x" * 3_000_000)
        except OSError:
            return


def test_it_hears_that_a_save_is_asked_for(
    lines: list[Channel], tmp_path: Path
) -> None:
    with shim_at(tmp_path / "s") as shim:
        line = dial(lines, shim.path)
        wait_for(lambda: shim.of("hello"), "hello")
        assert not line.save_is_asked
        shim.tell({"type": "save"})
        wait_for(lambda: line.save_is_asked, "the request")
        assert line.stop is None
