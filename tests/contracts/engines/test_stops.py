"""How an attempt is ended by a request."""

from tests.contracts.engines.landlord import HOUR, Tenant
from tests.scenarios.house import until


def test_cancel_asks_before_it_ends(tenant: Tenant) -> None:
    asked = tenant.shared / "asked"
    ready = tenant.shared / "trap-is-set"
    run = (
        f"trap 'touch {asked}; exit 0' TERM; touch {ready}; while :; do sleep 0.1; done"
    )
    id = tenant.runs(run, grace="30s")
    tenant.house.until_there(ready)
    assert tenant.stop(id).state == "CANCELLED"
    assert asked.exists()


def test_what_ignores_it_is_ended_after_its_grace(tenant: Tenant) -> None:
    ready = tenant.shared / "deaf"
    id = tenant.runs(
        f"trap '' TERM; touch {ready}; while :; do sleep 0.1; done", grace="1s"
    )
    tenant.house.until_there(ready)
    assert tenant.stop(id).state == "CANCELLED"
    assert tenant.landlord.processes(id, 1) == []


def test_cancel_leaves_nothing_of_what_forked_away(tenant: Tenant) -> None:
    ready = tenant.shared / "forked"
    run = f"trap '' TERM; (setsid sh -c 'trap \"\" TERM; touch {ready}; {HOUR}' &); {HOUR}"
    id = tenant.runs(run, grace="1s")
    tenant.house.until_there(ready)
    assert tenant.stop(id).state == "CANCELLED"
    until(lambda: tenant.landlord.processes(id, 1) == [], "nothing of it is left")


def test_cancel_ends_a_gang_on_every_node(tenant: Tenant) -> None:
    id = tenant.runs(nodes=2)
    assert tenant.stop(id).state == "CANCELLED"
    assert tenant.landlord.processes(id, 1) == []


def test_a_waiting_job_that_is_cancelled_never_begins(tenant: Tenant) -> None:
    holds = tenant.runs(**tenant.gpu_job(nodes=2, gpus=2), name="holds")
    began = tenant.shared / "began-cancelled"
    id = tenant.submit(f"touch {began}", **tenant.gpu_job())
    assert tenant.stop(id).state == "CANCELLED"
    tenant.stop(holds)
    assert tenant.ends("true", **tenant.gpu_job(), name="after").state == "DONE"
    assert not began.exists()


def test_cancel_while_it_starts_wins(tenant: Tenant) -> None:
    id = tenant.submit(HOUR)
    assert tenant.stop(id).state == "CANCELLED"
    until(lambda: tenant.landlord.processes(id, 1) == [], "nothing of it is left")


def test_cancel_again_is_harmless(tenant: Tenant) -> None:
    id = tenant.runs()
    assert tenant.stop(id).state == "CANCELLED"
    tenant.house.ok("stop", id, "-y")
    assert tenant.house.job(id).state == "CANCELLED"


def test_a_suspended_job_gives_its_gpus_to_others_and_goes_on(tenant: Tenant) -> None:
    all_of_it = tenant.gpu_job(nodes=2, gpus=2)
    id = tenant.runs(**all_of_it)
    tenant.house.ok("suspend", id, "-y")
    tenant.house.until_state(id, "SUSPENDED")
    assert tenant.ends("true", **all_of_it, name="meanwhile").state == "DONE"
    tenant.house.ok("resume", id, "-y")
    tenant.until_running(id)
    assert tenant.house.job(id).attempt == 2


def test_a_drained_node_is_left_by_its_jobs(tenant: Tenant) -> None:
    id = tenant.runs(checkpoint={"path": str(tenant.shared / "drained")})
    (left,) = tenant.house.job(id).nodes
    tenant.house.ok("node", "drain", left, "-y")
    try:
        until(lambda: tenant.house.job(id).attempt == 2, "it goes on elsewhere")
        tenant.until_running(id)
        assert left not in tenant.house.job(id).nodes
    finally:
        tenant.house.ok("node", "uncordon", left, "-y")


def test_a_shell_is_opened_beside_a_rank(tenant: Tenant) -> None:
    id = tenant.runs(env={"WHERE": "inside"})
    said = tenant.house.corral("attach", id, stdin="echo $WHERE $RANK; exit\n")
    assert (said.returncode, "inside 0" in said.stdout) == (0, True), said


def test_a_rank_reads_what_is_attached(tenant: Tenant) -> None:
    id = tenant.runs("read line; echo got $line; exit 5")
    said = tenant.house.corral("attach", id, "--stdin", stdin="over the wire\n")
    assert (said.returncode, said.stdout) == (5, "got over the wire\n")
