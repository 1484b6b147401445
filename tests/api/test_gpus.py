"""Every GPU as it is now, and what an hour of all that is held costs."""

from collections.abc import Iterator

import pytest

from corral.domain.telemetry import GpuSample, NodeSample
from tests.api.heads import Agent, Head, eventually
from tests.worlds import gang

BUSY = GpuSample(
    index=0,
    uuid="u0",
    utilisation=0.91239,
    memory_used_bytes=3,
    memory_total_bytes=4,
    power_watts=612.34,
    temperature_celsius=61.0,
)
SAMPLE = NodeSample(at=5.0, gpus=(BUSY, GpuSample(index=1, uuid="u1", silent=True)))


@pytest.fixture
def agent(head: Head) -> Iterator[Agent]:
    agent = Agent(head, "n1", gpus=3).hello()
    agent.beat(sample=SAMPLE)
    eventually(lambda: "n1" in head.control.sensed.newest)
    yield agent
    agent.close()


def test_each_gpu_is_told_with_who_holds_it_and_unknown_is_null(
    head: Head, agent: Agent
) -> None:
    with head.http("vera") as http:
        before = http.get("/v1/gpus").json()
        (job,) = head.run(head.control.submit([gang("one")], key="k", by="alice"))  # type: ignore[arg-type]
        eventually(lambda: bool(head.control.world.allocations))
        after = http.get("/v1/gpus").json()
    (row,) = before["nodes"]
    assert row == {
        "node": "n1",
        "at": 5.0,
        "index": [0, 1, 2],
        "utilisation": [0.912, None, None],
        "memory": [0.75, None, None],
        "power_watts": [612.3, None, None],
        "temperature_celsius": [61.0, None, None],
        "holders": ["", "", ""],
        "signs": ["", "silent", ""],
        "pretend": False,
    }
    assert (before["cost_per_hour"], before["unpriced_gpus"]) == (0.0, 0.0)
    assert sorted(after["nodes"][0]["holders"]) == ["", "", job.id]
    assert after["list_cost_per_hour"] > 0.5, "the catalog knows what an H100 costs"
    assert (after["cost_per_hour"], after["currency"]) == (0.0, "USD")


def test_a_node_that_has_said_nothing_of_its_sensors_is_there(head: Head) -> None:
    agent = Agent(head, "n2", gpus=1).hello()
    agent.beat()
    eventually(lambda: "n2" in head.control.world.nodes)
    with head.http("vera") as http:
        rows = {one["node"]: one for one in http.get("/v1/gpus").json()["nodes"]}
    row = rows["n2"]
    assert (row["at"], row["utilisation"], row["signs"]) == (None, [None], [""])
    agent.close()
