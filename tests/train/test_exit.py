"""The end of the interpreter: no thread of a process group may meet it, and nothing may
hold it up."""

import json
import signal
from typing import Any

import pytest

from tests.train.support import Gang, World, wait_for

pytestmark = pytest.mark.train


def launch(world: World, job: str, ranks: int = 2, **case: Any) -> Gang:
    usual = {"script_group": False, "stop": False, "second_training": False}
    env = {
        "EXIT_CASE": json.dumps({"out": str(world.out)} | usual | case),
        "INTERPRETER_ENDS": "1",
    }
    if job != "train_and_end":
        env["CORRAL_CHECKPOINT_PATH"] = ""
    return world.launch(1, ranks, job=f"tests.train.exit_jobs:{job}", env=env)


def notes(world: World, rank: int) -> dict[str, Any]:
    found = json.loads((world.out / f"exit-{rank}").read_text())
    assert isinstance(found, dict)
    return found


def wait_for_rank_0(world: World, gang: Gang) -> None:
    wait_for(lambda: gang.pids[0] in world.zygote.ended, "rank 0 ends")


def release_the_others(world: World) -> None:
    (world.out / "rank-0-is-gone").touch()


@pytest.mark.parametrize(("ranks", "stop"), [(1, False), (3, False), (3, True)])
def test_at_a_regular_end_the_groups_are_destroyed_and_their_threads_have_ended(
    world: World, ranks: int, stop: bool
) -> None:
    gang = launch(world, "train_and_end", ranks, stop=stop)
    assert gang.wait() == [75 if stop else 0] * ranks, gang.log()
    for rank in range(ranks):
        assert notes(world, rank) == {"initialized": False, "workers": 0}


@pytest.mark.parametrize("stop", [False, True])
def test_of_a_script_that_made_the_default_group_only_the_groups_of_the_run_go(
    world: World, stop: bool
) -> None:
    gang = launch(world, "train_and_end", script_group=True, stop=stop)
    assert gang.wait() == [75 if stop else 0] * 2, gang.log()
    workers_of_one_group = 2
    for rank in range(2):
        assert notes(world, rank) == {
            "initialized": True,
            "workers": workers_of_one_group,
        }


def test_a_script_may_reduce_after_the_last_step_and_in_its_exit_handlers(
    world: World,
) -> None:
    gang = launch(world, "evaluate_after_training", 3)
    assert gang.wait() == [0] * 3, gang.log()
    for rank in range(3):
        assert notes(world, rank) == {"after_training": 3.0, "in_handler": 3.0}


def test_a_rank_may_end_before_the_others(world: World) -> None:
    gang = launch(world, "end_before_the_others", 3)
    wait_for_rank_0(world, gang)
    release_the_others(world)
    assert gang.wait() == [0] * 3, gang.log()
    for rank in range(3):
        assert notes(world, rank) == {"initialized": False, "workers": 0}


def test_a_peer_that_was_killed_does_not_hold_up_the_end(world: World) -> None:
    gang = launch(world, "end_before_the_others", 3)
    wait_for_rank_0(world, gang)
    gang.kill(signal.SIGKILL, ranks=[1])
    release_the_others(world)
    assert gang.wait() == [0, -signal.SIGKILL, 0], gang.log()


def test_a_collective_that_a_peer_never_joins_does_not_hold_up_the_end(
    world: World,
) -> None:
    gang = launch(world, "reduce_alone_and_end")
    wait_for_rank_0(world, gang)
    release_the_others(world)
    assert gang.wait() == [0, 0], gang.log()


@pytest.mark.parametrize("second_training", [False, True])
def test_a_rank_that_fails_in_training_does_not_wait_for_its_groups(
    world: World, second_training: bool
) -> None:
    gang = launch(world, "fail_in_training", second_training=second_training)
    wait_for_rank_0(world, gang)
    release_the_others(world)
    assert gang.wait()[0] == 1, gang.log()
    assert "the script fails" in gang.log()
