"""What is seen of a node's GPUs while something runs on them."""

from corral.wire import api
from tests.contracts.engines.landlord import HOUR, Tenant
from tests.scenarios.house import until


def on(tenant: Tenant, node: str, gpus: int) -> str:
    """A job there, whose GPUs work."""
    env = {"PRETEND_GPU_USE": "0.7"}
    asked = tenant.gpu_job(gpus=gpus, env=env, constraints={"node": node})
    return tenant.runs(HOUR, **asked)


def busy(node: api.NodeDetail) -> dict[int, float]:
    """The GPUs of which it is known what they do, and that they work."""
    gpus = node.sample.gpus if node.sample is not None else ()
    return {gpu.index: gpu.utilisation for gpu in gpus if gpu.utilisation}


def holders(tenant: Tenant, node: str) -> list[str]:
    """Of each GPU of the node, the job that holds it."""
    with tenant.house.client() as client:
        return next(one.holders for one in client.gpus().nodes if one.node == node)


def test_what_the_gpus_of_each_job_do_is_seen_while_it_runs(tenant: Tenant) -> None:
    name = tenant.landlord.nodes[0]
    first, second = on(tenant, name, 1), on(tenant, name, 1)

    def seen() -> bool:
        return set(busy(tenant.house.node(name))) == {0, 1}

    until(seen, f"what both GPUs of {name} do")
    node = tenant.house.node(name)
    assert node.sample is not None
    assert node.sample.memory_total_bytes
    assert min(busy(node).values()) > 0.5
    assert set(holders(tenant, name)) == {first, second}
    with tenant.house.client() as client:
        curve = client.series(
            f"node:{name}", fields=("gpu0.utilisation", "gpu1.utilisation")
        )
        assert all(any(drawn) for drawn in curve.fields.values())
    tenant.stop(first)
    until(
        lambda: len(busy(tenant.house.node(name))) == 1,
        "what is over is not seen as before",
    )


def test_a_gpu_that_breaks_ends_its_job_by_the_clusters_fault_and_closes_its_node(
    tenant: Tenant,
) -> None:
    run = f'if [ "$CORRAL_ATTEMPT" = 1 ]; then {HOUR}; fi'
    id = tenant.runs(run, **tenant.gpu_job(env={"PRETEND_GPU_USE": "0.7"}))
    (where,) = tenant.house.job(id).nodes
    gpu = holders(tenant, where).index(id)
    until(
        lambda: gpu in busy(tenant.house.node(where)), f"what its GPU on {where} does"
    )
    tenant.landlord.tell_xid(where, id, gpu, 79)
    try:
        job = tenant.house.until_over(id)
        assert (job.state, job.attempt, where in job.nodes) == ("DONE", 2, False)
        assert (job.receipts[0].cause, where in job.receipts[0].culprit) == (
            "infra",
            True,
        )
        node = tenant.house.node(where)
        assert (node.draining, node.cordoned_by) == (True, "health")
        assert [(one.kind, one.code, one.count) for one in node.conditions] == [
            ("xid", 79, 1)
        ]
    finally:
        tenant.house.ok("node", "clear", where, "-y")
    until(lambda: not tenant.house.node(where).cordoned, f"{where} takes work again")
