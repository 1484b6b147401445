"""Real processes that die or freeze: what was running runs on, and what is told is
true."""

import os
import signal
import time
from collections.abc import Iterator
from typing import Any

import pytest

from corral.boot.start_head import head_runs, node_processes
from tests.patience import own_loopback
from tests.scenarios.house import House, house, until, wait_in_shell

LITTLE = {"cpu": 0.01}
NODES = ("n1", "n2")
shared = pytest.mark.xdist_group("faults")  # those with the cluster `pair`


@pytest.fixture(scope="module")
def whole_pair() -> Iterator[House]:
    with house("--nodes", "2", "--gpus", "1", "--host", own_loopback()) as made:
        yield made


@pytest.fixture
def pair(whole_pair: House) -> Iterator[House]:
    """Two nodes that are alive, and no unfinished job before the test and after it."""
    yield whole_pair
    (whole_pair.shared / "go").unlink(missing_ok=True)
    unfinished = [job.id for job in whole_pair.jobs() if not job.is_over]
    for id in unfinished:
        whole_pair.ok("stop", id, "-y")
    for id in unfinished:
        whole_pair.until_over(id)
    alive = dict.fromkeys(NODES, "alive")
    until(lambda: whole_pair.nodes() == alive, "both nodes are alive")


def submit_sweep(here: House, delays: list[float]) -> dict[str, int]:
    """One job for each delay: so long after `let_go` it ends with a code of its own.
    Codes by id, of jobs that all run."""
    wait = wait_in_shell(here.shared / "go")
    codes = {
        here.submit(
            f"ends-{code}", f"{wait}; sleep {delay}; exit {code}", resources=LITTLE
        ): code
        for code, delay in enumerate(delays, start=10)
    }
    until(lambda: all(here.job(id).state == "RUNNING" for id in codes), "all run")
    return codes


def let_go(here: House) -> None:
    (here.shared / "go").touch()


def assert_true_ends(here: House, codes: dict[str, int]) -> None:
    """Each ended once, by itself, and its code is the true one."""
    for id, code in codes.items():
        job = here.until_over(id)
        assert (job.exit_code, job.attempt, len(job.attempts)) == (code, 1, 1), job
        assert job.state == "FAILED"


@shared
def test_exits_around_a_kill_of_the_head_are_true_and_nothing_is_restarted(
    pair: House,
) -> None:
    steady = pair.submit("steady", "sleep 300")
    pair.until_state(steady, "RUNNING")
    codes = submit_sweep(pair, [0.4 * number for number in range(8)])
    let_go(pair)
    time.sleep(1.0)
    url = pair.answer("status")["head"]["url"]
    pair.kill_head()
    pair.up()
    assert pair.answer("status")["head"]["url"] == url, "the port has changed"
    assert_true_ends(pair, codes)
    assert (pair.job(steady).state, pair.job(steady).attempt) == ("RUNNING", 1)
    pair.ok("stop", steady, "-y")
    assert pair.until_over(steady).state == "CANCELLED"


@pytest.mark.soak
@pytest.mark.parametrize("down_seconds", [0.0, 2.0])
def test_exits_swept_two_seconds_around_a_restart_are_true(down_seconds: float) -> None:
    with house("--nodes", "2", "--gpus", "0") as here:
        for _ in range(5):
            codes = submit_sweep(here, [0.1 * number for number in range(41)])
            let_go(here)
            time.sleep(2.0)
            here.kill_head()
            time.sleep(down_seconds)
            here.up()
            assert_true_ends(here, codes)
            (here.shared / "go").unlink()


@shared
def test_a_job_outlives_its_agent_and_its_end_is_not_lost(pair: House) -> None:
    codes = submit_sweep(pair, [0.0, 0.5, 2.0])
    old = {node: pair.agent(node) for node in NODES}
    let_go(pair)
    for node in NODES:
        old[node].signal(signal.SIGKILL)
    until(
        lambda: all(
            pair.agent_or_none(node) not in (None, old[node]) for node in NODES
        ),
        "other agents are there",
    )
    assert_true_ends(pair, codes)


@shared
def test_head_and_agents_killed_together_lose_nothing(pair: House) -> None:
    codes = submit_sweep(pair, [0.0, 0.5, 1.5, 3.0])
    let_go(pair)
    pair.kill_head()
    for node in NODES:
        pair.agent(node).signal(signal.SIGKILL)
    pair.up()
    assert_true_ends(pair, codes)


def saving(here: House, then: str) -> dict[str, Any]:
    """A job with a checkpoint rule: its first attempt stays, a later one does
    `then`."""
    run = f'if [ "$CORRAL_ATTEMPT" = 1 ]; then sleep 300; else {then}; fi'
    path = str(here.shared / "saves")
    return {"run": run, "resources": {"gpu": 1}, "checkpoint": {"path": path}}


def test_a_job_whose_node_lost_its_power_goes_on_elsewhere() -> None:
    with house("--nodes", "2", "--gpus", "1", "--reboot", "2") as here:
        id = here.submit("moves", **saving(here, "true"))
        here.until_state(id, "RUNNING")
        (lost,) = here.job(id).nodes
        here.kill_node(lost)
        job = here.until_over(id)
        assert job.state == "DONE"
        assert [attempt.nodes for attempt in job.attempts] == [
            [lost],
            [{"n1": "n2"}.get(lost, "n1")],
        ]
        receipt = job.receipts[0]
        assert (receipt.cause, lost in receipt.culprit + receipt.evidence) == (
            "infra",
            True,
        )
        until(lambda: here.node(lost).liveness == "alive", "the node is back")


@shared
def test_a_frozen_node_is_seen_and_its_job_goes_on_elsewhere(pair: House) -> None:
    id = pair.submit("thaws", **saving(pair, "sleep 300"))
    pair.until_state(id, "RUNNING")
    (frozen,) = pair.job(id).nodes
    pids = pair.processes(f"nodes/{frozen}")
    assert len(pids) >= 3, "agent, launcher and rank at least"
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)
    try:
        until(lambda: pair.node(frozen).liveness != "alive", "silence is seen")
        until(lambda: pair.job(id).attempt == 2, "a new attempt is made")
        pair.until_state(id, "RUNNING")
        assert frozen not in pair.job(id).nodes
    finally:
        for pid in pids:
            os.kill(pid, signal.SIGCONT)
    until(lambda: pair.node(frozen).liveness == "alive", "the node is back")
    mark = f"attempts/{id}.1/"
    until(
        lambda: not pair.processes(f"nodes/{frozen}/{mark}"),
        "the old attempt is ended",
    )
    assert (pair.job(id).state, pair.job(id).attempt) == ("RUNNING", 2)


def test_down_leaves_no_process_of_the_cluster() -> None:
    with house("--nodes", "2", "--gpus", "1") as here:
        id = here.submit("last", "sleep 300", grace="1s")
        here.until_state(id, "RUNNING")
        assert here.processes()
        done = here.corral("down")
        assert done.returncode == 0, done.stderr
        assert "1 unfinished job: last (RUNNING)" in done.stderr
        assert here.processes() == []
        assert here.corral("ps").returncode == 4


def test_down_may_leave_jobs_which_the_next_head_finds_again() -> None:
    with house("--nodes", "1", "--gpus", "1") as here:
        stays = here.submit("stays", "sleep 300", resources={"gpu": 1})
        go = here.shared / "go"
        ends = here.submit("ends", f"{wait_in_shell(go)}; exit 9")
        until(
            lambda: {here.job(id).state for id in (stays, ends)} == {"RUNNING"},
            "both run",
        )
        here.ok("down", "--leave")
        assert not head_runs(here.place)
        go.touch()
        until(
            lambda: len(here.processes(f"nodes/n1/attempts/{ends}.1")) <= 1,
            "one has ended",
        )
        said = here.corral("up")
        assert said.returncode == 0, said.stderr
        noted = " ".join(said.stderr.split())
        assert f"the cluster in {here.root} continues with " in noted
        assert f"in {here.root})" in here.ok("status")
        job = here.until_over(ends)
        assert (job.exit_code, job.attempt) == (9, 1)
        assert (here.job(stays).state, here.job(stays).attempt) == ("RUNNING", 1)
        assert here.corral("up", "--restart", "--nodes", "2").returncode == 3
        here.ok("up", "--restart", "--operators-add-machines")
        assert (here.job(stays).state, here.job(stays).attempt) == ("RUNNING", 1)


def test_up_again_is_harmless_and_no_way_to_change_a_cluster() -> None:
    with house("--nodes", "1", "--gpus", "1") as here:
        pid = here.head_pid()
        again = here.corral("up")
        assert "already up" in again.stdout
        pages = f"web pages: {here.answer('status')['head']['url']}/;"
        assert pages in again.stdout
        assert "corral ui" in again.stdout
        assert "continues" not in again.stderr
        assert "already up" in here.ok("up", "--nodes", "1")
        done = here.corral("up", "--nodes", "2")
        assert (done.returncode, here.head_pid()) == (3, pid)
        assert "corral down; corral up --nodes 2" in done.stderr
        stays = here.submit("stays", "sleep 300")
        until(lambda: here.job(stays).state == "RUNNING", "it runs")
        restarted = " ".join(here.corral("up", "--restart").stderr.split())
        assert f"{here.root} continues with 1 unfinished job" in restarted
        assert here.head_pid() != pid
        assert (here.job(stays).state, here.job(stays).attempt) == ("RUNNING", 1)
        here.ok("down")
        assert node_processes(here.place) == []
        here.up("--nodes", "2")
        assert len(here.answer("node", "ls")["nodes"]) == 2


def test_run_without_a_head_starts_one_and_bad_input_starts_none() -> None:
    with house() as here:
        refused = here.corral("run", "--gpus", "-1", "--", "true")
        assert (refused.returncode, here.root.exists()) == (3, False)
        planned = here.corral("run", "--dry-run", "-n", "plans", "--", "true")
        assert (planned.returncode, here.root.exists()) == (0, False)
        assert here.corral("ps").returncode == 4
        done = here.corral("run", "-n", "first", "--no-workdir", "--", "echo", "hello")
        assert (done.returncode, done.stdout.splitlines()[-1]) == (0, "hello")
        assert "no head runs" in done.stderr


@shared
def test_an_acknowledged_submit_is_there_after_a_kill_at_once(pair: House) -> None:
    for round in range(3):
        id = pair.submit(f"kept-{round}", "true")
        pair.kill_head()
        pair.up()
        assert pair.until_over(id).state == "DONE"


def test_up_waits_for_the_nodes_as_they_are_now() -> None:
    with house("--nodes", "2") as made:
        made.ok("down", "-y")
        made.ok("up", "--nodes", "1", "--gpus", "2", "--pretend", "--json")
        status = made.answer("status")
        heard = {one["id"]: one["has_heartbeat"] for one in status["nodes"]}
        assert heard["n1"]
        assert not heard.get("n2"), "it is on its way out of the list"
        assert status["nodes"][0]["gpus"]["total"] == 2
        made.ok("run", "--no-workdir", "--gpus", "2", "--", "true")
