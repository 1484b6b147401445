"""A long job gives its place to a short one of its queue, saves, and goes on from
there."""

from collections.abc import Iterator

import pytest

from tests.scenarios.giving import finish, has_saved, receipt, train, waits, went_on
from tests.scenarios.house import House, house, until

pytestmark = [pytest.mark.xdist_group("buys"), pytest.mark.soak]

QUEUES = """kind: queues
min_runtime: 2s
queues:
  - {name: default, preempt: saving}
"""
LONG_SECONDS = 400.0  # it has to run for a minute before it counts as long


@pytest.fixture(scope="module")
def here() -> Iterator[House]:
    with house("--nodes", "1", "--gpus", "2") as made:
        made.apply(QUEUES)
        yield made


def test_a_long_job_that_saves_gives_way_to_one_that_will_end_soon_and_resumes(
    here: House,
) -> None:
    for number in range(8):
        here.until_over(
            here.submit(f"short-{number}", "true", resources={"gpu": 2, "cpu": 0.1})
        )
    long = train(here, "long", "default")
    until(lambda: has_saved(here, long), "a save is recorded")
    short = waits(here, "short", "default")
    here.until_state(short, "QUEUED")
    here.until_state(short, "RUNNING", seconds=LONG_SECONDS)
    given, taken = (
        receipt(here.job(long), "preemption"),
        receipt(here.job(short), "taking"),
    )
    assert (given.others, taken.others) == ([short], [long])
    assert given.steps_lost == 0, "it has saved when it was told to stop"
    assert given.text.startswith(
        f"preempted for short ({short}) of queue default, which has had less service (0.0 s "
    )
    assert (
        "and has waited for as long as the preemption costs; saved at step "
        in given.text
    )
    assert here.job(long).state == "QUEUED"
    finish(here, "short")
    went_on(here, long, given)
    finish(here, "long")
    for id in (long, short):
        assert here.until_over(id).state == "DONE"
