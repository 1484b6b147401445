"""A real job that saves is moved so that a larger one fits: it goes on elsewhere from
its save."""

from collections.abc import Iterator

import pytest

from corral.agent import journal
from tests.scenarios.giving import finish, has_saved, receipt, train, waits, went_on
from tests.scenarios.house import House, house, until

pytestmark = pytest.mark.xdist_group("relocation")

QUEUES = """kind: queues
min_runtime: 1s
relocation: {gpu_hours: 2, pause: 1h}
queues:
  - {name: default, gpus: 8, policy: fifo-skip}  # in which no place is bought
"""


@pytest.fixture(scope="module")
def here() -> Iterator[House]:
    with house("--nodes", "2", "--gpus", "4") as made:
        said = made.apply(QUEUES)
        assert "~ relocation: none -> {gpu_hours: 2, pause: 1h}" in said
        yield made


def halves(here: House, one: str, other: str, *, grace: str = "5s") -> tuple[str, str]:
    """Two jobs that have saved: each takes half of a node, and no other is there."""
    first = train(here, one, "default", grace=grace)
    here.until_state(first, "RUNNING")
    name = f"between-{one}"
    between = waits(here, name, "default")
    here.until_state(between, "RUNNING")
    second = train(here, other, "default", grace=grace)
    until(lambda: has_saved(here, first) and has_saved(here, second), "both have saved")
    finish(here, name)
    here.until_over(between)
    assert node_of(here, first) != node_of(here, second), "each node is half in use"
    return first, second


def has_ended(here: House, id: str) -> bool:
    """Whether its first attempt is over, as its node's own journal says."""
    (book,) = here.root.glob(f"nodes/*/attempts/{id}.1/{journal.FILE}")
    return any(record["type"] == "ended" for record in journal.read(book) or [])


def node_of(here: House, id: str) -> str:
    (seat,) = here.job(id).attempts[-1].seats
    return seat.node


def test_one_of_two_halves_is_moved_and_both_sides_are_told_what_it_cost(
    here: House,
) -> None:
    left, right = halves(here, "left", "right")
    big = waits(here, "big", "default", gpus=4)
    here.until_state(big, "RUNNING")
    (moved,) = [id for id in (left, right) if here.job(id).attempt == 2]
    (stayed,) = {left, right} - {moved}
    given, taken = (
        receipt(here.job(moved), "relocation"),
        receipt(here.job(big), "taking"),
    )
    assert (given.others, taken.others) == ([big], [moved])
    assert given.steps_lost == 0, "it has saved when it was told to stop"
    to = node_of(here, stayed)
    assert given.text.startswith(
        f"moved to {to} to make room for big ({big}) of queue default; "
    )
    assert f"was moved to {to} to make room (saved at step " in taken.text
    for id, text in ((moved, given.text), (big, taken.text)):
        for command in ("why", "show", "events"):
            assert text in here.ok(command, id).replace("\n", ""), command
    here.until_state(moved, "RUNNING")
    assert node_of(here, moved) == to
    went_on(here, moved, given)
    assert "relocations have cost 0" in here.ok("queue", "ls")
    finish(here, "left", "right", "big")
    for id in (left, right, big):
        assert here.until_over(id).state == "DONE"


@pytest.mark.soak
def test_a_move_outlives_the_head_that_began_it_at_any_moment_of_its_stop(
    here: House,
) -> None:
    """Killed once after the move is on record, and again before its job has stopped,
    which then happens without a head: it goes on where it was to go, and each side has
    one receipt."""
    east, west = halves(here, "east", "west", grace="60s")
    (here.shared / "frozen").touch()
    wide = waits(here, "wide", "default", gpus=4)
    until(
        lambda: any(here.job(id).state == "STOPPING" for id in (east, west)),
        "one is to move",
    )
    here.kill_head()
    here.up()
    (moved,) = [id for id in (east, west) if here.job(id).state == "STOPPING"]
    (stayed,) = {east, west} - {moved}
    assert here.job(wide).state == "QUEUED"
    here.kill_head()
    (here.shared / "frozen").unlink()
    until(lambda: has_ended(here, moved), "it has stopped, and its node alone knows")
    here.up()
    here.until_state(wide, "RUNNING")
    here.until_state(moved, "RUNNING")
    assert node_of(here, moved) == node_of(here, stayed) != node_of(here, wide)
    given, taken = (
        receipt(here.job(moved), "relocation"),
        receipt(here.job(wide), "taking"),
    )
    assert (given.others, taken.others) == ([wide], [moved])
    assert given.steps_lost == 0, "it has saved when it was told to stop"
    went_on(here, moved, given)
    finish(here, "east", "west", "wide")
    for id, attempts in ((moved, 2), (stayed, 1), (wide, 1)):
        job = here.until_over(id)
        assert (job.state, job.attempt) == ("DONE", attempts)
        assert len(job.receipts) == (0 if id == stayed else 1)
