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
    with tenant.house.client() as client:
        (told,) = [one for one in client.gpus().nodes if one.node == name]
        assert set(told.holders) == {first, second}
        curve = client.series(f"node:{name}", fields=("gpu0.utilisation", "gpu1.utilisation"))
        assert all(any(drawn) for drawn in curve.fields.values())
    tenant.stop(first)
    until(lambda: len(busy(tenant.house.node(name))) == 1, "what is over is not seen as before")
