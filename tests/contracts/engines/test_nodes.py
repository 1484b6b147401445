"""What a node offers, and what becomes of its jobs when it dies."""

from typing import Any

from tests.contracts.engines.landlord import HOUR, Tenant
from tests.scenarios.house import until


def saving(tenant: Tenant, then: str) -> dict[str, Any]:
    """A job with saves, which may go on elsewhere: its first attempt stays, a later one
    ends."""
    run = f'if [ "$CORRAL_ATTEMPT" = 1 ]; then {HOUR}; else {then}; fi'
    return {"run": run, "checkpoint": {"path": str(tenant.shared / "saves")}}


def until_alive(tenant: Tenant, node: str) -> None:
    until(lambda: tenant.house.node(node).liveness == "alive", f"{node} is alive")


def test_what_a_node_has_is_told(tenant: Tenant) -> None:
    for name in tenant.landlord.nodes:
        node = tenant.house.node(name)
        assert (node.gpus.total, node.liveness) == (2, "alive")
        assert node.cpus > 0
        assert node.memory_bytes > 0


def test_more_than_any_node_has_is_refused(tenant: Tenant) -> None:
    done = tenant.house.corral(
        "run", "--gpus", "3", "-d", "-y", "--no-workdir", "--", "true"
    )
    assert done.returncode == 3
    assert "GPU" in done.stderr


def test_what_others_hold_is_waited_for_and_not_refused(tenant: Tenant) -> None:
    with tenant.landlord.others() as node:
        until(lambda: tenant.house.node(node).gpus.taken == 2, "others hold its GPUs")
        assert tenant.house.node(node).gpus.total == 2
        id = tenant.submit("true", **tenant.gpu_job(nodes=2, gpus=2))
        said = f"programs outside Corral use 2 of 2 GPUs on {node}"
        until(lambda: said in tenant.house.ok("why", id), "what it waits for is told")
        assert tenant.house.job(id).state == "QUEUED"
    assert tenant.house.until_over(id).state == "DONE"


def test_an_agents_death_loses_no_job(tenant: Tenant) -> None:
    """It runs on, or is tried again at no cost of its own."""
    done = tenant.shared / "agent-died"
    id = tenant.runs(f"while [ ! -e {done} ]; do sleep 0.1; done; exit 9")
    (node,) = tenant.house.job(id).nodes
    tenant.landlord.kill_agent(node, id)
    done.touch()
    job = tenant.house.until_over(id)
    assert job.exit_code == 9
    assert all(receipt.cause == "infra" for receipt in job.receipts[:-1])


def test_a_dead_node_is_proven_and_its_job_goes_on_elsewhere(tenant: Tenant) -> None:
    id = tenant.runs(**saving(tenant, "true"))
    (lost,) = tenant.house.job(id).nodes
    tenant.landlord.kill_node(lost)
    try:
        job = tenant.house.until_over(id)
        assert (job.state, lost in job.nodes) == ("DONE", False)
        receipt = job.receipts[0]
        assert (receipt.cause, lost in receipt.culprit + receipt.evidence) == (
            "infra",
            True,
        )
    finally:
        tenant.landlord.revive(lost)
    until_alive(tenant, lost)


def test_a_dead_node_ends_its_gang_everywhere(tenant: Tenant) -> None:
    id = tenant.runs(HOUR, nodes=2)
    lost = tenant.landlord.nodes[1]
    tenant.landlord.kill_node(lost)
    try:
        until(lambda: tenant.house.job(id).state != "RUNNING", "its end is seen")
        until(
            lambda: tenant.landlord.processes(id, 1) == [],
            "nothing of the attempt is left",
        )
    finally:
        tenant.landlord.revive(lost)
    until_alive(tenant, lost)
    tenant.until_running(id)
    assert tenant.house.job(id).attempt >= 2


def test_a_node_that_is_back_takes_work(tenant: Tenant) -> None:
    first, second = tenant.landlord.nodes
    tenant.landlord.kill_node(first)
    until(lambda: tenant.house.node(first).liveness != "alive", "it is seen dead")
    tenant.landlord.revive(first)
    until_alive(tenant, first)
    tenant.house.ok("node", "cordon", second, "-y")
    try:
        assert tenant.ends("true").nodes == [first]
    finally:
        tenant.house.ok("node", "uncordon", second, "-y")
