"""What the head is asked: as little as a live view bears, and what was known stays when
it goes."""

import asyncio
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from corral.cli.top.feed import (
    BEAT_SECONDS,
    SENSED_SECONDS,
    SHARE,
    Feed,
    JobsQuery,
    PollPace,
)
from corral.cli.top.job_feed import JobFeed
from corral.cli.top.jobs import ON_NODES, WAITING
from corral.domain.errors import Forbidden
from tests.cli.top.town import NOW, Town


class Hours:
    """A clock that goes on when it is told to; each question may take some time."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now

    def wall(self) -> float:
        return NOW + self.now


def rounds(feed: Feed, hours: Hours, seconds: Sequence[float]) -> None:
    for one in seconds:
        asyncio.run(feed.step())
        hours.now += one


def made(town: Town) -> tuple[Feed, Hours]:
    hours = Hours()
    return Feed(town, clock=hours, wall=hours.wall), hours


def test_while_nothing_happens_listings_are_asked_for_as_often_as_sensors_speak() -> (
    None
):
    town = Town.of(3, 10)
    feed, hours = made(town)
    rounds(feed, hours, [1.0] * 60)
    assert town.asked["events"] == 60
    assert {town.asked[what] for what in ("status", "gpus")} == {6}
    assert town.asked["jobs"] == 12, "those on nodes and those that wait"


def test_what_has_happened_is_seen_in_the_next_round() -> None:
    town = Town.of(3, 2)
    feed, hours = made(town)
    rounds(feed, hours, [1.0] * 3)
    before = town.asked["status"]
    town.number += 1
    town.nodes = town.nodes[:1]
    rounds(feed, hours, [1.0])
    assert town.asked["status"] == before + 1
    assert feed.known.status is not None
    assert len(feed.known.status.nodes) == 1


@given(
    took=st.floats(0.0, 5.0), events=st.lists(st.booleans(), min_size=1, max_size=200)
)
def test_no_question_takes_more_than_its_share_of_the_time(
    took: float, events: list[bool]
) -> None:
    pace, now, number, asked = PollPace(), 0.0, 0, []
    for happened in events:
        number += happened
        if pace.is_due(now, number):
            asked.append(now)
            pace.asked(now, took, number)
        now += BEAT_SECONDS
    for one, two in zip(asked, asked[1:], strict=False):
        assert two - one >= max(BEAT_SECONDS, SHARE * took)
    if took * SHARE <= SENSED_SECONDS:
        assert len(asked) >= len(events) * BEAT_SECONDS // (
            SENSED_SECONDS + BEAT_SECONDS
        )


def test_a_head_that_goes_away_is_told_and_all_that_was_known_stays() -> None:
    town = Town.of(3, 10)
    feed, hours = made(town)
    rounds(feed, hours, [1.0])
    known = feed.known
    town.away()
    rounds(feed, hours, [1.0, 2.0, 4.0])
    assert feed.known.status == known.status
    assert feed.known.jobs == known.jobs
    link = feed.known.link
    assert (link.live, link.why, link.since) == (
        False,
        "no head answers there",
        NOW + 1.0,
    )
    assert link.hint == "run: corral up"
    assert feed.nap == 5.0, "it is tried again, and not each second for ever"
    town.back()
    town.nodes = town.nodes[:2]
    rounds(feed, hours, [1.0])
    assert feed.known.link.live
    assert feed.known.status is not None
    assert len(feed.known.status.nodes) == 2
    assert feed.nap == BEAT_SECONDS


def test_a_head_that_came_back_is_asked_for_everything_although_its_events_have_not_moved() -> (
    None
):
    town = Town.of(1, 1)
    feed, hours = made(town)
    rounds(feed, hours, [1.0])
    town.away()
    rounds(feed, hours, [1.0])
    town.trouble = None
    before = town.asked["status"]
    rounds(feed, hours, [1.0, 1.0])
    assert town.asked["status"] == before + 1


def test_those_on_nodes_are_listed_before_those_that_wait_and_no_more_than_wanted() -> (
    None
):
    town = Town.of(20, 300, running=120)
    feed, hours = made(town)
    rounds(feed, hours, [1.0])
    assert (len(feed.known.jobs), feed.known.more) == (100, True)
    assert {one.state for one in feed.known.jobs} == {"RUNNING"}
    assert [want["states"] for want in town.wants] == [ON_NODES], (
        "the others are not needed yet"
    )
    feed.want(JobsQuery(count=200))
    rounds(feed, hours, [1.0])
    assert [one.state for one in feed.known.jobs].count("QUEUED") == 80
    assert town.wants[-1]["states"] == WAITING
    feed.want(JobsQuery("waiting", "train-299"))
    rounds(feed, hours, [1.0])
    assert ([one.id for one in feed.known.jobs], feed.known.more) == (["j299"], False)
    feed.want(JobsQuery("over"))
    rounds(feed, hours, [1.0])
    assert feed.known.jobs == []
    assert town.wants[-1]["all"]


def test_a_request_wakes_the_loop_at_once() -> None:
    town = Town.of(1, 5)
    feed = Feed(town)
    seen: list[int] = []

    async def request() -> None:
        running = asyncio.create_task(
            feed.run(lambda: seen.append(len(feed.known.jobs)))
        )
        while not seen:
            await asyncio.sleep(0.001)
        feed.want(JobsQuery(text="train-3"))
        while seen[-1] != 1:
            await asyncio.sleep(0.001)
        running.cancel()

    asyncio.run(asyncio.wait_for(request(), 0.9 * BEAT_SECONDS))


def test_how_busy_a_job_is_comes_from_the_gpus_that_it_holds() -> None:
    town = Town.of(2, 3, running=2)
    feed, hours = made(town)
    rounds(feed, hours, [1.0])
    assert feed.known.busy_of == {"j0": 0.0, "j1": 0.01}
    assert feed.known.held_busy == pytest.approx(0.005)
    assert feed.known.watts is not None
    assert feed.known.as_json()["status"]["jobs"] == {"RUNNING": 2, "QUEUED": 1}


def test_one_job_is_looked_at_with_its_reason_log_and_curves() -> None:
    town = Town.of(1, 2, running=1)
    hours = Hours()
    feed = JobFeed(town, "j0", clock=hours, wall=hours.wall)
    for _ in range(20):
        asyncio.run(feed.step())
        hours.now += 1.0
    known = feed.known
    assert known.job is not None
    assert known.log == ["one", "two"]
    assert known.picture is not None
    assert [row.name for row in known.picture.rows] == ["GPU busy", "loss"]
    assert (town.asked["job"], town.asked["why"], town.asked["logs"]) == (10, 10, 10)
    assert town.asked["series"] == 4, "its own and its node's, each 10 s"


def test_a_log_that_may_not_be_read_leaves_the_rest_and_a_lost_head_what_was_seen() -> (
    None
):
    town = Town.of(1, 1, running=1)
    town.refusal = Forbidden("the log of train-0 is another's")
    hours = Hours()
    feed = JobFeed(town, "j0", clock=hours, wall=hours.wall)
    asyncio.run(feed.step())
    assert feed.known.log_said == "the log of train-0 is another's"
    assert feed.known.job is not None
    town.away()
    hours.now += 3.0
    asyncio.run(feed.step())
    assert not feed.known.link.live
    assert feed.known.job is not None
    town.back()
    asyncio.run(feed.step())
    assert feed.known.link.live
