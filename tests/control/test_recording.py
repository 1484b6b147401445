"""What goes into the curves is what nodes say and the head sees."""

from collections.abc import Mapping

from corral.control.recording import node_values
from corral.control.sensed import Sensed
from corral.domain.ids import NodeId
from corral.domain.telemetry import GpuSample, NodeSample, PortSample


def test_gpus_are_named_by_their_index_and_what_is_not_known_is_none() -> None:
    gpu = GpuSample(index=3, uuid="g", utilisation=0.5, memory_used_bytes=1, memory_total_bytes=4)
    port = PortSample(name="eth0", kind="ethernet", up=True, received_bytes=7, sent_bytes=9)
    found: Mapping[str, float | None] = node_values(NodeSample(at=1, gpus=(gpu,), ports=(port,)))
    assert found["gpu3.utilisation"] == 0.5
    assert found["gpu3.memory"] == 0.25
    assert found["gpu3.power_watts"] is None
    assert (found["received_bytes"], found["sent_bytes"]) == (7, 9)


def test_whoever_listens_is_told_of_each_sample_and_the_newest_is_known() -> None:
    sensed, heard = Sensed(), list[tuple[str, float]]()
    sensed.listen(lambda node, sample, at: heard.append((node, at)))
    sensed.take(NodeId("n1"), NodeSample(at=1), 5.0)
    sensed.take(NodeId("n1"), NodeSample(at=2), 6.0)
    assert heard == [("n1", 5.0), ("n1", 6.0)]
    assert sensed.newest[NodeId("n1")].at == 2
    sensed.drop(NodeId("n1"))
    assert not sensed.newest
