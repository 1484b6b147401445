"""What goes into the curves is what nodes say and the head sees."""

from collections.abc import Mapping
from types import SimpleNamespace
from typing import cast

from corral.control import Control
from corral.control.latest_samples import Sensed
from corral.control.series_recorder import (
    Recorder,
    cluster_values,
    node_values,
    scalar_values,
)
from corral.domain.ids import AttemptNumber, JobId, NodeId
from corral.domain.observed_state import Progress, Scalar
from corral.domain.pilot import part_of
from corral.domain.telemetry import GpuSample, NodeSample, PortSample
from corral.ports.series_store import SeriesStore
from tests.worlds import Cluster, gang, node


def test_gpus_are_named_by_their_index_and_what_is_not_known_is_none() -> None:
    gpu = GpuSample(
        index=3, uuid="g", utilisation=0.5, memory_used_bytes=1, memory_total_bytes=4
    )
    port = PortSample(
        name="eth0", kind="ethernet", up=True, received_bytes=7, sent_bytes=9
    )
    found: Mapping[str, float | None] = node_values(
        NodeSample(at=1, gpus=(gpu,), ports=(port,))
    )
    assert found["gpu3.utilisation"] == 0.5
    assert found["gpu3.memory"] == 0.25
    assert found["gpu3.power_watts"] is None
    assert (found["received_bytes"], found["sent_bytes"]) == (7, 9)


def test_scalars_are_kept_by_their_names_and_never_in_place_of_a_field_of_ours() -> (
    None
):
    logged = (Scalar("lr", 0.1, 0.05, 0.2), Scalar("huge", 1e300, None, 1.0))
    assert scalar_values(Progress(step=1, scalars=logged)) == {
        **{"lr": 0.1, "lr.low": 0.05, "lr.high": 0.2},
        **{"huge": None, "huge.low": None, "huge.high": 1.0},
    }


def test_whoever_listens_is_told_of_each_sample_and_the_newest_is_known() -> None:
    sensed, heard = Sensed(), list[tuple[str, float]]()
    sensed.listen(lambda node, sample, at: heard.append((node, at)))
    sensed.take(NodeId("n1"), NodeSample(at=1), 5.0)
    sensed.take(NodeId("n1"), NodeSample(at=2), 6.0)
    assert heard == [("n1", 5.0), ("n1", 6.0)]
    assert sensed.newest[NodeId("n1")].at == 2
    sensed.drop(NodeId("n1"))
    assert not sensed.newest


def test_of_the_cluster_only_gpus_that_are_held_count_for_how_busy_they_are() -> None:
    cluster = Cluster(node("n1"))
    job = cluster.submit(gang(gpus=1))
    (held,) = cluster.world.attempts[job].seats[0].gpus
    gpus = tuple(
        GpuSample(
            index=one,
            uuid=f"g{one}",
            power_watts=100.0,
            utilisation=0.25 + (one != held),
        )
        for one in range(2)
    )
    found = cluster_values(cluster.world, {NodeId("n1"): NodeSample(at=1, gpus=gpus)})
    assert (found["gpus"], found["held_gpus"], found["utilisation"]) == (2, 1.0, 0.25)
    assert found["power_watts"] == 200.0


def test_a_curve_of_a_node_whose_parts_speak_in_turn_is_no_denser_than_that_of_another() -> (
    None
):
    control, drawn = SimpleNamespace(sensed=Sensed()), list[float]()
    series = SimpleNamespace(put=lambda key, at, values: drawn.append(at))
    Recorder(cast(Control, control), cast(SeriesStore, series))
    parts = [
        part_of(NodeId("n1"), (JobId(f"j{at}"), AttemptNumber(1))) for at in range(5)
    ]
    for at in range(20):
        control.sensed.take(parts[at % 5], NodeSample(at=at), float(at))
    assert drawn == [0.0, 1.0, 6.0, 11.0, 16.0]
    drawn.clear()
    for moment in (30.0, 31.0):
        control.sensed.take(NodeId("n2"), NodeSample(at=moment), moment)
    assert drawn == [30.0, 31.0], "one agent says when it has something to say"
