"""Labels of a living node: set by an operator, durable, and what waits goes by them."""

from collections.abc import Iterator

import pytest

from corral.domain.errors import SpecInvalid
from corral.domain.ids import NodeId
from corral.store.row_codec import NODE
from corral.wire.node_labels import read_labels, set_labels
from tests.api.heads import TOKENS, Agent, Head, eventually
from tests.golden.transcript import transcript


@pytest.fixture
def cluster(head: Head, monkeypatch: pytest.MonkeyPatch) -> Iterator[Head]:
    monkeypatch.setenv("CORRAL_URL", head.url)
    monkeypatch.setenv("CORRAL_TOKEN", TOKENS["admin"])
    agent = Agent(head, "n1").hello()
    agent.beat()
    eventually(lambda: "n1" in head.control.world.nodes)
    yield head
    agent.close()


def test_labels_are_set_taken_away_shown_and_written_down(cluster: Head) -> None:
    assert "n1: disk=nvme zone=b" in transcript("node label n1 zone=b disk=nvme -y")
    assert "n1: zone=b" in transcript("node label n1 disk- -y")
    labelled = cluster.control.world.nodes[NodeId("n1")]
    assert labelled.labels == {"zone": "b", "node": "n1"}
    assert NODE.read(*NODE.write(labelled)) == labelled
    with cluster.http() as http:
        assert http.get("/v1/nodes/n1").json()["labels"] == {"zone": "b"}
        audit = http.get("/v1/audit").json()["entries"]
        assert [(one["what"], one["on"], one["detail"]) for one in audit[:2]] == [
            ("node.label", "n1", "disk-"),
            ("node.label", "n1", "disk=nvme zone=b"),
        ]
        told = [one["text"] for one in http.get("/v1/events").json()["events"]]
        assert "node n1: disk=nvme zone=b, requested by admin" in told


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("n9 zone=b", "there is no node"),
        ("n1", "no label for node n1 was given"),
        ("n1 node=n2", "the label node is the name of the node"),
        ("n1 zone=a/", "'zone=a/' is not a valid label"),
        ("n1 zone=", "'zone=' is not a valid label"),
        ("n1 zone=a zone-", "given twice"),
    ],
)
def test_what_is_no_label_of_a_node_is_refused(
    cluster: Head, words: str, said: str
) -> None:
    before = cluster.control.world.nodes[NodeId("n1")]
    told = transcript(f"node label {words} -y")
    assert said in told
    assert "[exit 0]" not in told
    assert cluster.control.world.nodes[NodeId("n1")].set_labels == before.set_labels


def test_labels_are_typed_as_elsewhere() -> None:
    assert read_labels(["zone=a", "disk-", "gold"]) == {
        "zone": "a",
        "disk": None,
        "gold": "true",
    }
    assert set_labels({"b": None, "a": "1"}) == (("a", "1"), ("b", None))
    with pytest.raises(SpecInvalid):
        set_labels({"": "x"})
