"""A job goes where its model is there soonest, in seconds, among equal nodes."""

from collections.abc import Sequence
from dataclasses import replace

import pytest

from corral.domain.attempt import Exit
from corral.domain.content import (
    ContentItem,
    ContentReport,
    load_seconds,
    quickest_nodes,
)
from corral.domain.ids import NodeId
from corral.domain.observed_state import Phase
from corral.domain.requests import StoredRequest
from corral.reconcile import Now, PassOutcome, reconcile
from corral.reconcile.cache.pass_cache import Memo
from tests.worlds import Cluster, gang, node

SOURCE = "hf://org/name@main"
GIGABYTE = 10**9


def item(size: int = 8 * GIGABYTE) -> ContentItem:
    return ContentItem(
        key="a" * 64, name="hf://org/name@c0ffee", size_bytes=size, sources=(SOURCE,)
    )


class Keeping(Cluster):
    """A cluster whose nodes report content."""

    def __init__(self, **reports: ContentReport) -> None:
        self.reports, self.memo = reports, Memo()
        super().__init__(*map(node, reports))

    def decide(self, requests: Sequence[StoredRequest], now: Now) -> PassOutcome:
        for id, report in self.reports.items():
            if NodeId(id) in self.facts.nodes:
                facts = self.facts.nodes[NodeId(id)]
                self.facts.nodes[NodeId(id)] = replace(facts, content=report)
        return reconcile(self.world, self.facts, requests, now, memo=self.memo)


def place_of(cluster: Cluster, gpus: int = 1) -> str:
    job = cluster.submit(gang(gpus=gpus, model=SOURCE))
    return cluster.world.attempts[job].nodes[0]


def test_a_job_goes_to_the_node_that_has_its_model() -> None:
    cluster = Keeping(
        n1=ContentReport(), n2=ContentReport(items=(item(),)), n3=ContentReport()
    )
    assert [place_of(cluster) for _ in range(3)] == ["n2", "n2", "n1"]
    assert cluster.world.attempts[cluster.submit(gang())].nodes == ("n1",)


def test_a_waiting_job_follows_its_model() -> None:
    cluster = Keeping(n1=ContentReport(), n2=ContentReport(items=(item(),)))
    first = [place_of(cluster, gpus=2) for _ in range(2)]
    assert sorted(first) == ["n1", "n2"]
    waiting = cluster.submit(gang(gpus=1, model=SOURCE))
    assert waiting not in cluster.world.attempts
    cluster.reports = {"n1": cluster.reports["n2"], "n2": cluster.reports["n1"]}
    for job in list(cluster.world.attempts):
        cluster.say(job, Phase.ENDED, exits=((0, Exit(code=0)),))
    cluster.tick()
    assert cluster.world.attempts[waiting].nodes == ("n1",)


def test_the_seconds_come_from_the_size_and_the_measured_rate() -> None:
    reports = {
        NodeId("there"): ContentReport(items=(item(),)),
        NodeId("quick"): ContentReport(bytes_per_second=4.0 * GIGABYTE),
        NodeId("slow"): ContentReport(bytes_per_second=0.1 * GIGABYTE),
    }
    seconds = load_seconds(SOURCE, reports)
    assert seconds == {"there": 0.0, "quick": 2.0, "slow": 80.0}
    assert load_seconds("hf://org/name@c0ffee", reports) == seconds
    assert load_seconds("hf://other/name", reports) == {}
    assert quickest_nodes(seconds) == {"there"}
    del seconds[NodeId("there")]
    assert quickest_nodes(seconds) == {"quick"}


@pytest.mark.parametrize("size", [0, GIGABYTE // 100])
def test_a_model_that_is_there_in_a_moment_makes_no_difference(size: int) -> None:
    reports = {
        NodeId("a"): ContentReport(items=(item(size),)),
        NodeId("b"): ContentReport(),
    }
    assert quickest_nodes(load_seconds(SOURCE, reports)) == frozenset()
