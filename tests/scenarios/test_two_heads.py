"""One head falls, the next takes over: what runs runs on, what was acknowledged is
there, once."""

import json
import os
import re
import signal
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.postgres import Server, server
from tests.scenarios.heads import Pair, Submitter, health, pair
from tests.scenarios.house import House, until, wait_in_shell


@pytest.fixture(scope="module")
def database() -> Iterator[Server]:
    """A server of these tests alone: they restart it."""
    with server() as one:
        yield one


@pytest.fixture(scope="module")
def two(database: Server) -> Iterator[Pair]:
    with pair(database.database()) as made:
        yield made


def steady(here: House, two: Pair, name: str) -> tuple[str, Path]:
    """A job that runs until the file is there, and says so then."""
    go = two.shared / f"{name}.go"
    id = here.submit(
        name, f"{wait_in_shell(go)}; echo at the end", resources={"cpu": 0.01}
    )
    here.until_state(id, "RUNNING")
    return id, go


def end(here: House, job: tuple[str, Path]) -> None:
    """It ends as it was begun, and all that it wrote is there."""
    job[1].touch()
    over = here.until_over(job[0])
    assert (over.state, over.attempt) == ("DONE", 1)
    assert here.logs(job[0]).endswith("at the end\n")


def test_a_standby_takes_over_from_a_leader_that_is_killed(two: Pair) -> None:
    old, new = two.leader(), two.standby()
    assert old is not None
    job = steady(old, two, "through-the-kill")
    with Submitter(new, two.shared / "killed", "k") as submitter:
        submitter.until_more()
        os.kill(old.head_pid(), signal.SIGKILL)
        two.until_leads(new)
        submitter.until_more()
        two.until_heard(new)
    submitter.check(new)
    end(new, job)
    two.up(old)
    assert health(old) == {"status": "standing by"}
    assert old.answer("status")["head"]["url"] == new.answer("status")["head"]["url"]
    shown = old.ok("status")
    assert re.search(rf"^directory +{re.escape(str(old.root))}$", shown, re.MULTILINE)
    assert f"in {old.root})" not in shown, "the process is that of the head that leads"
    names = {head["name"]: head["leads"] for head in old.answer("status")["heads"]}
    assert names == {new.root.name: True, old.root.name: False}
    again, own = old.corral("up"), json.loads(old.place.head_json.read_text())
    assert f"already up: {own['url']} (process {own['pid']})" in again.stdout
    assert "this head is a standby; the leader is" in again.stderr


def test_a_leader_that_slept_too_long_writes_nothing_and_stands_by(two: Pair) -> None:
    old, new = two.leader(), two.standby()
    assert old is not None
    job = steady(old, two, "through-the-sleep")
    term = old.answer("status")["cluster"]["term"]
    with Submitter(new, two.shared / "slept", "s") as submitter:
        submitter.until_more()
        pid = two.freeze(old)
        two.until_leads(new)
        submitter.until_more()
        os.kill(pid, signal.SIGCONT)
        until(lambda: health(old).get("status") == "standing by", "it stands by")
        submitter.until_more()
        two.until_heard(new)
    submitter.check(new)
    end(old, job)  # asked of the one that stands by
    assert old.head_pid() == pid, "it is the same process"
    assert old.answer("status")["cluster"]["term"] > term


@pytest.mark.soak
def test_each_of_three_heads_answers_alike_under_load(two: Pair) -> None:
    """Two stand by: they pass on what is asked and written there, and one of them may
    die."""
    with two.third() as c, ExitStack() as stack:
        heads, standby = (two.a, two.b, c), two.standby()
        at = [
            stack.enter_context(
                Submitter(one, two.shared / f"at-{name}", name, pause_seconds=1.0)
            )
            for name, one in zip("abc", heads, strict=True)
        ]
        for submitter in at:
            submitter.until_more(2)
        assert len({leader_at(one) for one in heads}) == 1, (
            "all say the same of who leads"
        )
        os.kill(standby.head_pid(), signal.SIGKILL)
        for submitter in at:
            if submitter.here is not standby:
                submitter.until_more(2)
        for submitter in at:
            submitter.end()
        two.up(standby)
        for submitter in at:
            for one in heads:
                assert set(submitter.acknowledged) <= names_at(one)
            submitter.check(c)


def leader_at(here: House) -> str:
    with here.client() as client:
        return client.status().head.url


def names_at(here: House) -> set[str]:
    with here.client() as client:
        return {job.name for job in client.jobs(everything=True, limit=10_000)}


def test_a_restart_of_the_database_under_load_loses_nothing(
    two: Pair, database: Server
) -> None:
    here = two.leader()
    assert here is not None
    job = steady(here, two, "through-the-restart")
    with Submitter(here, two.shared / "restarted", "r") as submitter:
        submitter.until_more()
        database.kill()
        database.start()
        submitter.until_more()
    submitter.check(two.standby())
    end(two.standby(), job)


def test_a_leader_that_goes_down_lets_the_other_lead_at_once(two: Pair) -> None:
    old, new = two.leader(), two.standby()
    assert old is not None
    job = steady(new, two, "through-the-leave")
    said = old.ok("down", "--leave", "-y")
    assert re.search(r"down; \d+ unfinished jobs? continues?", said)
    two.until_leads(new)
    assert [head["name"] for head in new.answer("status")["heads"]] == [new.root.name]
    two.until_heard(new)
    end(new, job)
