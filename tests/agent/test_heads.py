"""An agent finds the head that leads, whichever of several it is, and whatever
head.json says."""

import json
from pathlib import Path

import pytest
from websockets.datastructures import Headers
from websockets.exceptions import InvalidStatus
from websockets.http11 import Response

from corral.agent.head_addresses import ANSWERS, FILE, HeadAddresses
from corral.domain.observed_state import Phase, Seen
from tests.agent.bench import bench, key_of
from tests.agent.fakehead import FakeHead

A, B = "http://127.0.0.1:1", "http://127.0.0.1:2"
AWAY = ConnectionRefusedError()
NOT_NOW = InvalidStatus(Response(503, "Later", Headers(), b""))


def url_of(head: FakeHead) -> str:
    return f"http://{head.host}:{head.port}"


def heads(tmp_path: Path, *named: str) -> HeadAddresses:
    (tmp_path / "head.json").write_text(json.dumps({"url": A}))
    found = HeadAddresses(tmp_path / "head.json", tmp_path)
    found.named(named)
    return found


def test_a_lone_head_is_dialled_where_its_file_says_at_each_dial(
    tmp_path: Path,
) -> None:
    lone = heads(tmp_path)
    lone.failed(lone.url(), AWAY)
    assert lone.url() == A
    (tmp_path / "head.json").write_text(json.dumps({"url": B}))
    assert lone.url() == B


def test_a_head_that_is_away_gives_its_turn_to_the_next(tmp_path: Path) -> None:
    several = heads(tmp_path, B, A)
    assert several.url() == B
    several.failed(B, AWAY)
    assert several.url() == A
    several.failed(B, AWAY)  # of a talk from before
    assert several.url() == A
    several.failed(A, TimeoutError())
    assert several.url() == B


def test_a_head_that_stands_by_is_asked_for_a_while_before_the_next(
    tmp_path: Path,
) -> None:
    several = heads(tmp_path, A, B)
    assert several.url() == A
    for _ in range(ANSWERS - 1):
        several.failed(A, NOT_NOW)
        assert several.url() == A
    several.failed(A, NOT_NOW)
    assert several.url() == B


def test_a_restarted_agent_knows_the_heads_though_its_own_file_is_gone(
    tmp_path: Path,
) -> None:
    heads(tmp_path, B, A)
    (tmp_path / "head.json").unlink()
    assert HeadAddresses(tmp_path / "head.json", tmp_path).url() == B
    (tmp_path / FILE).write_text("{torn")
    with pytest.raises(FileNotFoundError):
        HeadAddresses(tmp_path / "head.json", tmp_path).url()


async def test_beats_and_logs_go_on_with_the_next_head(tmp_path: Path) -> None:
    async with bench(tmp_path) as here:
        other = FakeHead(file=tmp_path / "other.json")
        await other.start()
        here.head.named = (url_of(here.head), url_of(other))
        await here.until(lambda: (tmp_path / FILE).exists())
        here.ranks.attempts[key_of(1)] = Seen(key=key_of(1), phase=Phase.UP)
        logs = tmp_path / "attempts/j1.1/logs"
        logs.mkdir(parents=True)
        (logs / "rank-0.log").write_bytes(b"said to the other\n")
        try:
            await here.head.die()
            await other.until(lambda: other.beats)
            here.agent.changed()
            await other.until(lambda: other.log(key_of(1)))
        finally:
            await other.die()


async def test_a_head_that_answers_no_beat_any_more_is_left_with_its_logs(
    tmp_path: Path,
) -> None:
    async with bench(tmp_path) as here:
        other = FakeHead(file=tmp_path / "other.json")
        await other.start()
        here.head.named = (url_of(here.head), url_of(other))
        await here.until(lambda: (tmp_path / FILE).exists())
        try:
            here.head.heard = False
            await other.until(lambda: other.beats)
            await here.until(lambda: not here.head.connections)
        finally:
            await other.die()
