"""Real jobs give way: they save, stop, wait in their place, and go on from their save;
both sides have a receipt that is true."""

import json
from collections.abc import Iterator

import pytest

from tests.scenarios.giving import finish, has_saved, receipt, train, waits, went_on
from tests.scenarios.house import House, house, until

pytestmark = pytest.mark.xdist_group("gives-way")

QUEUES = """kind: queues
min_runtime: 2s
queues:
  - {name: vision, gpus: 2}
  - {name: speech, gpus: 2}
  - {name: text, gpus: 2}
"""


@pytest.fixture(scope="module")
def here() -> Iterator[House]:
    with house("--nodes", "3", "--gpus", "2") as made:
        made.apply(QUEUES)
        yield made


def test_three_queues_lend_take_back_and_are_told_what_it_cost(here: House) -> None:
    idle = [waits(here, f"borrows-{number}", "speech") for number in range(2)]
    trains = train(here, "trains", "speech")
    until(lambda: has_saved(here, trains), "a save is recorded")
    queue = here.answer("queue", "show", "speech")
    assert (queue["used"], queue["borrowed"]) == (6.0, 4.0)
    before = here.job(trains)

    owner = waits(here, "owner", "vision")
    here.until_state(owner, "RUNNING")
    here.until_state(trains, "QUEUED")
    assert {here.job(id).state for id in idle} == {"RUNNING"}, "they would lose more"
    victim, taker = here.job(trains), here.job(owner)
    assert (victim.submitted_at, victim.attempts[0].cause) == (
        before.submitted_at,
        "request",
    )
    given, taken = receipt(victim, "preemption"), receipt(taker, "taking")
    assert (given.others, taken.others) == ([owner], [trains])
    assert given.resumed_from_step is not None
    assert given.resumed_from_step >= before.checkpoints[-1].step
    assert given.steps_lost == 0, "it has saved when it was told to stop"
    assert taken.gpu_seconds_lost == given.gpu_seconds_lost
    reclaimed = (
        f"preempted for owner ({owner}) of queue vision, which reclaimed its own 2 GPUs"
    )
    assert given.text.startswith(
        f"{reclaimed}; saved at step {given.resumed_from_step}, lost "
    )
    assert taken.text.startswith(
        f"took 2 GPUs from trains ({trains}) of queue speech (saved at "
    )
    for id, text in ((trains, given.text), (owner, taken.text)):
        for command in ("why", "show", "events"):
            assert text in here.ok(command, id).replace("\n", ""), command
        assert text in [one["text"] for one in here.answer("why", id)["receipts"]]

    second = waits(here, "second", "text")
    here.until_state(second, "RUNNING")
    (lost,) = [one for id in idle for one in here.job(id).receipts]
    assert lost.text.startswith(
        f"preempted for second ({second}) of queue text, which reclaimed its own 2 GPUs; no save"
    )
    assert here.answer("queue", "show", "speech")["borrowed"] == 0.0

    finish(here, "owner", "second")
    went_on(here, trains, given)
    finish(here, "trains", "borrows-0", "borrows-1")
    for id in (*idle, trains, owner, second):
        assert here.until_over(id).state == "DONE"


def test_a_higher_priority_takes_the_place_of_a_job_that_saves(here: House) -> None:
    low = train(here, "low", "speech")
    others = [waits(here, name, "speech") for name in ("stay-a", "stay-b")]
    until(lambda: has_saved(here, low), "a save is recorded")
    high = waits(here, "high", "speech", priority="high")
    here.until_state(high, "RUNNING")
    assert {here.job(id).state for id in others} == {"RUNNING"}, "they do not save"
    given = receipt(here.job(low), "preemption")
    assert given.text.startswith(
        f"preempted for high ({high}) of queue speech, whose priority 100 is above that of this "
        "job (0); "
    )
    finish(here, "high")
    went_on(here, low, given)
    finish(here, "low", "stay-a", "stay-b")
    for id in (low, high, *others):
        assert here.until_over(id).state == "DONE"


def test_a_spent_budget_is_seen_before_and_after_and_demotes_in_sight(
    here: House,
) -> None:
    here.ok("queue", "set", "text", "--gpu-hours", "0.001", "--period", "30d", "-y")
    job = waits(here, "spends", "text")
    here.until_state(job, "RUNNING")
    assert "budget left" in here.ok("queue", "show", "text")
    said = here.answer("queue", "show", "text")["budget"]
    assert said["runs_out_at"] is not None or said["is_spent"]
    until(
        lambda: here.answer("queue", "show", "text")["budget"]["is_spent"],
        "it is spent",
    )
    until(lambda: "budget of queue text is spent" in here.ok("events"), "it is told")
    shown = here.corral("queue", "ls")
    assert (
        "the budget of queue text is spent: until it is renewed, jobs of the queue run only"
        in (shown.stderr.replace("\n", " "))
    )
    owner = waits(here, "pays", "speech")
    here.until_state(owner, "RUNNING")
    assert here.job(job).state == "RUNNING", "there is room for both"
    finish(here, "spends", "pays")
    for id in (job, owner):
        assert here.until_over(id).state == "DONE"
    assert json.loads(here.ok("queue", "show", "text", "--json"))["borrowed"] == 0.0
