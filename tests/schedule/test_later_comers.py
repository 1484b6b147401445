"""A day with and without those who come later: what was promised before is not later
for them."""

from dataclasses import replace
from math import inf
from typing import NamedTuple

import pytest
from hypothesis import given, settings

from corral.domain.ids import JobId
from corral.domain.queue import Queue
from corral.domain.queue_policy import Policy
from corral.domain.queue_tree import QueueTree, whole_tree
from tests.schedule.days import Come, Day
from tests.schedule.test_promises import EASY, NODES, comes, one

LATER_AT = 200.0


class Two(NamedTuple):
    """The same day twice, up to the moment at which others come to one of them."""

    alone: Day
    joined: Day
    told: dict[JobId, float]  # the starts that both were told until now


def tree_of(policy: Policy) -> QueueTree:
    return whole_tree([Queue(name=EASY, policy=policy)])


def in_line(some: list[Come], *, first: int, at: float | None = None) -> list[Come]:
    """All in one queue, of one user, in the order in which they come."""
    found = []
    for place, come in enumerate(sorted(some, key=lambda come: come.at)):
        gang = replace(
            come.gang, job=JobId(f"j{first + place}"), kin=f"j{first + place}",
            order=(first + place, 0), queue=EASY, priority=0, user=one("x").user,
        )  # fmt: skip
        found.append(
            replace(come, gang=gang, at=come.at if at is None else max(at, come.at))
        )
    return found


def two_days(policy: Policy, some: list[Come], others: list[Come]) -> Two:
    early = in_line(
        [replace(come, at=min(come.at, LATER_AT - 1)) for come in some], first=0
    )
    later = in_line(others, first=len(early), at=LATER_AT)
    alone = Day(NODES, early, tree_of(policy))
    joined = Day(NODES, [*early, *later], tree_of(policy))
    for day in (alone, joined):
        while day.now < LATER_AT:
            day.step()
            day.forward()
    assert alone.promised == joined.promised
    return Two(alone, joined, {one.job: one.start for one in alone.promised.values()})


@pytest.mark.parametrize("policy", [Policy.CONSERVATIVE, Policy.BACKFILL])
@settings(max_examples=60)
@given(some=comes(), others=comes())
def test_what_was_promised_before_is_not_later_for_those_who_come_later(
    policy: Policy, some: list[Come], others: list[Come]
) -> None:
    """Of EASY it is one promise. As they come, just the same is told as if they had
    not; later on nobody begins after the start that was told."""
    alone, joined, told = two_days(policy, some, others)
    early = {come.gang.job for come in alone.comes}
    joined.step()
    if alone.now == joined.now:  # else nothing happens then, but that they come
        alone.step()
    for job, promise in alone.promised.items():
        if job in joined.promised:
            assert joined.promised[job].start <= promise.start
        else:
            assert joined.began.get(job, inf) <= promise.start
    assert all(alone.began[job] == joined.began.get(job) for job in alone.began)
    joined.live(until=early)
    assert all(joined.began[job] <= start for job, start in told.items())
