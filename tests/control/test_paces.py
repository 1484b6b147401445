"""A straggler is told once, with its node; what bounds a job is said while it runs."""

from dataclasses import replace
from typing import Any

from corral.control.latest_samples import Sensed
from corral.control.step_times import LOOK_SECONDS, Paces
from corral.domain.ids import JobId, NodeId
from corral.domain.observed_state import Pace, Phase, Progress
from corral.domain.telemetry import GpuSample, NodeSample
from corral.domain.world import Event
from corral.insight.bottleneck import Bottleneck, BottleneckKind
from tests.worlds import Cluster, gang, node


class Gang:
    """Two nodes with two ranks each, whose steps take 100 ms, and those of the slow one
    more."""

    def __init__(self) -> None:
        self.cluster = Cluster(node("n1"), node("n2"))
        self.id: JobId = self.cluster.submit(gang(nodes=2, gpus=2))
        self.cluster.up(self.id)
        self.paces = Paces()
        self.looks = 0
        self.told: list[Event] = []

    def bound(
        self, sensed: Sensed, *, after_seconds: float = 100.0
    ) -> Bottleneck | None:
        """What bounds it, so long after its ranks were up."""
        up_at = self.cluster.world.attempts[self.id].running_at or 0.0
        return self.paces.bottleneck(
            self.cluster.world, sensed, self.id, up_at + after_seconds
        )

    def pass_by(
        self, looks: int, *, slow: int | None = None, data: float = 0.0
    ) -> None:
        for _ in range(looks):
            self.looks += 1
            done = 40 * self.looks
            for at, name in enumerate(("n1", "n2")):
                ranks = tuple(
                    Pace(
                        rank,
                        done,
                        data * done,
                        0.11 * done,
                        (0.0 if rank == slow else 0.01) * done,
                    )
                    for rank in (2 * at, 2 * at + 1)
                )
                progress = Progress(
                    step=done,
                    data_seconds=data * done,
                    compute_seconds=0.11 * done,
                    ranks=ranks,
                )
                self.cluster.say(self.id, Phase.UP, on=name, progress=progress)
            self._look()

    def stand_still(self, *, seconds: float, silent: str | None = None) -> None:
        """Let time pass in which no rank makes a step. `silent`: a node that sends no
        heartbeats."""
        if silent is not None:
            self.cluster.mute.add(NodeId(silent))
        for _ in range(int(seconds / LOOK_SECONDS)):
            self._look()

    def _look(self) -> None:
        cluster = self.cluster
        cluster.tick(seconds=LOOK_SECONDS)
        self.told += self.paces.look(
            cluster.world, cluster.facts, cluster.serving, cluster.wall
        )


def full_gpus(gang: Gang) -> Sensed:
    """Return samples in which each GPU of the gang runs a kernel nearly all the time."""
    sensed = Sensed()
    gpus = tuple(GpuSample(index=at, uuid=str(at), utilisation=0.95) for at in range(2))
    for name in gang.cluster.nodes:
        sensed.take(name, NodeSample(at=0.0, gpus=gpus), 0.0)
    return sensed


def test_a_straggler_is_told_once_with_its_node_and_its_share() -> None:
    whole = Gang()
    whole.pass_by(12, slow=3)
    (event,) = whole.told
    assert (event.kind, event.job, event.node) == ("straggler", whole.id, NodeId("n2"))
    assert "rank 3 on n2 is 10 % slower" in event.text
    found = whole.bound(Sensed())
    assert found is not None
    assert found.bound == BottleneckKind.STRAGGLER


def test_of_ranks_that_are_alike_none_is_told() -> None:
    whole = Gang()
    whole.pass_by(12)
    assert whole.told == []
    assert whole.bound(Sensed()) is None


def test_a_job_that_waits_for_its_data_and_one_whose_gpus_are_full_are_told_apart() -> (
    None
):
    whole = Gang()
    whole.pass_by(4, data=0.1)
    sensed = Sensed()
    found = whole.bound(sensed)
    assert found is not None
    assert found.bound == BottleneckKind.DATA
    full = Gang()
    full.pass_by(4)
    gpus = tuple(GpuSample(index=at, uuid=str(at), utilisation=0.95) for at in range(2))
    for name in full.cluster.nodes:
        sensed.take(name, NodeSample(at=0.0, gpus=gpus), 0.0)
    found = full.bound(sensed)
    assert found is not None
    assert found.bound == BottleneckKind.COMPUTE


def test_nothing_is_said_of_gpus_that_start_nor_of_pretend_ones() -> None:
    whole, sensed = Gang(), Sensed()
    whole.pass_by(4)

    def read(**more: Any) -> None:
        gpus = tuple(
            GpuSample(index=at, uuid=str(at), utilisation=0.0, **more)
            for at in range(2)
        )
        for name in whole.cluster.nodes:
            sensed.take(name, NodeSample(at=0.0, gpus=gpus), 0.0)

    read()
    assert whole.bound(sensed, after_seconds=1.0) is None
    found = whole.bound(sensed)
    assert found is not None
    assert found.bound == BottleneckKind.IDLE
    read(pretend=True)
    assert whole.bound(sensed) is None


def test_a_job_whose_links_are_full_is_told_so_by_the_rate_that_the_catalog_has() -> (
    None
):
    full, sensed = Gang(), Sensed()
    full.pass_by(4)
    gpus = tuple(
        GpuSample(
            index=at, uuid=str(at), type="h100", utilisation=0.95,
            nvlink_sent_bytes_per_second=4e10, nvlink_received_bytes_per_second=3.6e11,
            pcie_sent_bytes_per_second=1e9, pcie_received_bytes_per_second=1e9,
            pcie_generation=5, pcie_width=16,
        )
        for at in range(2)
    )  # fmt: skip
    for name in full.cluster.nodes:
        sensed.take(name, NodeSample(at=0.0, gpus=gpus), 0.0)
    found = full.bound(sensed)
    assert found is not None
    assert found.bound == BottleneckKind.COMMUNICATION
    assert "of the job's GPUs carry 360 of 450 GB/s, 80 % of their rate" in found.text


def test_an_attempt_that_is_over_is_not_spoken_of() -> None:
    whole = Gang()
    whole.pass_by(12, slow=0)
    attempt = whole.cluster.world.attempts[whole.id]
    whole.cluster.world.attempts[whole.id] = replace(attempt, ended_at=1.0)
    whole.pass_by(1)
    assert whole.bound(Sensed()) is None


def test_a_gang_that_makes_no_step_is_stalled_whatever_its_gpus_show() -> None:
    whole = Gang()
    whole.pass_by(4)
    full = full_gpus(whole)
    whole.stand_still(seconds=20.0)
    assert whole.bound(full) is None, "a rank may hang: its GPUs prove nothing"
    whole.stand_still(seconds=20.0)
    found = whole.bound(full)
    assert found is not None
    assert found.bound is BottleneckKind.STALLED
    texts = (found.text, found.advice)
    assert "no rank has made a step for 40.0 s, and a step took 110 ms" in texts[0]
    assert f"corral debug stacks {whole.id}" in texts[1]
    whole.pass_by(1)
    found = whole.bound(full)
    assert found is not None
    assert found.bound is BottleneckKind.COMPUTE


def test_a_gang_whose_node_is_silent_is_not_called_stalled() -> None:
    whole = Gang()
    whole.pass_by(4)
    whole.stand_still(seconds=40.0, silent="n1")
    found = whole.bound(full_gpus(whole))
    assert found is None or found.bound is not BottleneckKind.STALLED
