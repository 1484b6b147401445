"""How an attempt ends by itself, and what is told of it."""

import re

import pytest

from tests.contracts.engines.landlord import HOUR, Tenant
from tests.scenarios.house import until, wait_in_shell


@pytest.mark.parametrize(
    ("run", "code"),
    [("exit 7", 7), ("kill -SEGV $$", 139), ("/no/such/program", 127)],
    ids=["exit", "signal", "not found"],
)
def test_the_code_is_the_true_one(tenant: Tenant, run: str, code: int) -> None:
    job = tenant.ends(run)
    assert (job.state, job.exit_code) == ("FAILED", code)


def test_a_rank_that_fails_ends_its_gang(tenant: Tenant) -> None:
    job = tenant.ends(f"if [ $RANK = 1 ]; then exit 5; else {HOUR}; fi", nodes=2)
    assert (job.state, job.exit_code) == ("FAILED", 5)
    assert tenant.landlord.processes(job.id, 1) == []


def test_a_gang_is_done_when_its_last_rank_is(tenant: Tenant) -> None:
    late = tenant.shared / "late"
    run = f"[ $RANK = 0 ] || {wait_in_shell(late)}"
    id = tenant.submit(run, nodes=2)
    tenant.until_running(id)
    assert tenant.ends("true", name="meanwhile").state == "DONE"
    assert tenant.house.job(id).state == "RUNNING"
    late.touch()
    assert tenant.house.until_over(id).state == "DONE"


def test_its_time_limit_ends_it(tenant: Tenant) -> None:
    job = tenant.ends(HOUR, max_duration="2s")
    assert job.state == "FAILED"
    assert "max_duration of 2 s" in job.reason
    assert tenant.landlord.processes(job.id, 1) == []


def test_it_is_warned_before_its_time_is_over(tenant: Tenant) -> None:
    warned = tenant.shared / "warned"
    run = f"trap 'touch {warned}; exit 0' USR1; while :; do sleep 0.1; done"
    job = tenant.ends(run, max_duration="30s", warn={"signal": "USR1", "before": "27s"})
    assert (job.state, warned.exists()) == ("DONE", True)


def test_what_failed_by_itself_is_tried_again_as_often_as_asked(tenant: Tenant) -> None:
    job = tenant.ends("exit 3", retry={"user": 1})
    assert (job.state, [one.number for one in job.attempts]) == ("FAILED", [1, 2])


def test_the_next_attempt_begins_when_nothing_of_the_last_is_left(
    tenant: Tenant,
) -> None:
    log = tenant.shared / "attempts"
    run = f"echo in >> {log}; trap 'sleep 0.3; echo out >> {log}; exit 4' TERM; {HOUR} & wait"
    id = tenant.runs(run)
    tenant.house.ok("suspend", id, "-y")
    tenant.house.until_state(id, "SUSPENDED")
    tenant.house.ok("resume", id, "-y")
    until(
        lambda: log.read_text().split()[-1:] == ["in"] and _in(log.read_text()) == 2,
        "again",
    )
    tenant.stop(id)
    assert re.fullmatch(r"(in\nout\n)+", log.read_text())


def _in(text: str) -> int:
    return text.split().count("in")


def test_too_much_memory_ends_it_and_is_told(tenant: Tenant) -> None:
    run = 'python3 -c "x = bytearray(400_000_000); print(len(x)); import time; time.sleep(3)"'
    job = tenant.ends(run, resources={"cpu": 0.5, "memory": "64MB"})
    assert job.state == "FAILED"
    told = f"{job.reason} {[receipt.evidence for receipt in job.receipts]}"
    assert "memory" in told


def test_what_was_taken_is_free_after_the_end(tenant: Tenant) -> None:
    for _ in range(2):
        assert tenant.ends("true", **tenant.gpu_job(nodes=2, gpus=2)).state == "DONE"


def test_both_outputs_are_kept(tenant: Tenant) -> None:
    said = tenant.says("echo out; echo err >&2")
    assert sorted(said.split()) == ["err", "out"]


def test_output_is_followed_while_it_is_written(tenant: Tenant) -> None:
    read = tenant.shared / "read-it"
    id = tenant.submit(f"echo first; {wait_in_shell(read)}; echo last")
    text = ""
    with tenant.house.client() as client:
        for piece in client.logs(id, follow=True):
            text += piece.data
            if "first" in text:
                read.touch()
    assert text == "first\nlast\n"


def test_long_output_is_whole(tenant: Tenant) -> None:
    job = tenant.ends("seq 200000")
    lines = tenant.house.logs(job.id).split()
    assert (len(lines), lines[-1]) == (200_000, "200000")


def test_output_that_is_no_text_does_no_harm(tenant: Tenant) -> None:
    said = tenant.says("printf 'a\\377\\000\\033b\\n'; echo after")
    assert said.endswith("after\n")


def test_a_clean_end_with_children_left_leaves_none(tenant: Tenant) -> None:
    job = tenant.ends(f"(setsid {HOUR} &) ; sleep 0.2; true")
    assert job.state == "DONE"
    until(lambda: tenant.landlord.processes(job.id, 1) == [], "nothing of it is left")
