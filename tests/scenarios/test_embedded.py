"""A cluster of one machine: what `corral run` starts by itself, and what is not said of
it."""

from pathlib import Path

from corral.boot.start_head import head_runs, node_processes
from tests.scenarios.house import House, house, wait_in_shell

REFUSED = {
    "more than there is": ["--gpus", "99"],
    "a queue that is not": ["--queue", "nobody"],
}


def refused(house: House, *words: str) -> None:
    done = house.corral("run", "-d", "--no-workdir", *words, "--", "true")
    assert done.returncode == 3, done.stdout + done.stderr


def test_a_refusal_leaves_no_head_that_was_not_there_and_ends_none_that_was() -> None:
    with house("--nodes", "1", "--gpus", "1") as here:
        refused(here, "--gpus", "99")
        assert head_runs(here.place)
        here.ok("down", "-y")
        for words in REFUSED.values():
            refused(here, *words)
            assert not head_runs(here.place)
            assert node_processes(here.place) == []


def test_what_was_left_running_runs_on_after_a_refusal(tmp_path: Path) -> None:
    with house("--nodes", "1", "--gpus", "1") as here:
        gate = tmp_path / "gate"
        id = here.submit("stays", wait_in_shell(gate))
        here.until_state(id, "RUNNING")
        here.ok("down", "--leave", "-y")
        refused(here, "--gpus", "99")
        assert not head_runs(here.place)
        here.up()
        gate.touch()
        over = here.until_over(id)
        assert (over.state, over.attempt) == ("DONE", 1)


def test_a_lone_node_has_its_machines_disk_and_nobody_is_warned_of_it() -> None:
    with house("--nodes", "1", "--gpus", "1") as here:
        warnings = here.answer("status")["warnings"]
        assert "node_isolation" not in [warning["code"] for warning in warnings]
        assert here.node("n1").private_root


def test_a_head_that_does_not_start_says_why_without_its_log() -> None:
    with house() as here:
        done = here.corral("up", "--gpus", "1", "--host", "192.0.2.99")
        assert done.returncode == 4
        assert done.stderr.splitlines()[0] == (
            "corral: the head does not start: the head cannot listen on 192.0.2.99: "
            "Cannot assign requested address"
        )
        assert "serve only this machine: corral up --host 127.0.0.1" in done.stderr
        assert "{" not in done.stderr
