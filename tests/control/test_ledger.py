"""What sensors say is summed per attempt, written once a minute, and unmeasured is not
idle."""

from dataclasses import replace

import pytest

from corral.control.gpu_usage import FLUSH_SECONDS, LONGEST_SECONDS, GpuUsage
from corral.domain.ids import JobId, NodeId
from corral.domain.ledger import UsageAmounts
from corral.domain.telemetry import GpuSample, NodeSample
from corral.domain.world import Changes
from tests.worlds import Cluster, gang, node

N1, N2 = NodeId("n1"), NodeId("n2")


def gpu(index: int, utilisation: float | None, **more: object) -> GpuSample:
    return GpuSample(
        index=index,
        uuid=f"g{index}",
        type="h100",
        utilisation=utilisation,
        **more,  # type: ignore[arg-type]
    )


class Watch:
    """A job on two nodes with two GPUs each, whose sensors speak each 10 s."""

    def __init__(self) -> None:
        self.cluster = Cluster(node("n1"), node("n2"))
        self.job: JobId = self.cluster.submit(gang(nodes=2, gpus=2))
        self.cluster.up(self.job)
        self.ledger = GpuUsage()
        self.at = self.cluster.wall + 100.0
        self.key = (self.job, self.cluster.world.attempts[self.job].number)

    def say(self, *gpus: GpuSample, on: NodeId = N1, seconds: float = 10.0) -> None:
        self.at += seconds
        self.ledger.take(
            self.cluster.world, on, NodeSample(at=self.at, gpus=gpus), self.at
        )

    @property
    def sums(self) -> UsageAmounts:
        found = UsageAmounts()
        for one in self.ledger.waiting():
            found = found.plus(one.amounts)
        return found


def test_used_is_the_integral_of_utilisation_and_energy_that_of_power() -> None:
    watch = Watch()
    for share in (0.5, 1.0, 0.0):
        watch.say(gpu(0, share, power_watts=400.0), gpu(1, 0.5, power_watts=200.0))
    sums = watch.sums
    assert sums.measured_gpu_seconds == pytest.approx(60.0)
    assert sums.used_gpu_seconds == pytest.approx(15.0 + 15.0)
    assert sums.idle_gpu_seconds == pytest.approx(10.0)
    assert sums.energy_joules == pytest.approx(30 * 600.0)


def test_a_counter_of_joules_goes_before_the_power_unless_it_began_anew() -> None:
    watch = Watch()
    watch.say(gpu(0, 1.0, power_watts=100.0, energy_joules=5000.0))
    watch.say(gpu(0, 1.0, power_watts=100.0, energy_joules=9000.0))
    watch.say(gpu(0, 1.0, power_watts=100.0, energy_joules=10.0))
    assert watch.sums.energy_joules == pytest.approx(1000.0 + 4000.0 + 1000.0)


def test_of_the_energy_since_the_last_sample_a_job_pays_for_its_own_time() -> None:
    watch = Watch()
    watch.say(gpu(0, 1.0, energy_joules=5000.0))
    before = watch.sums.energy_joules
    allocations = watch.cluster.world.allocations
    for key, one in list(allocations.items()):
        allocations[key] = replace(one, placed_at=watch.at + 7.5)
    watch.say(gpu(0, 1.0, energy_joules=9000.0))
    assert watch.sums.energy_joules - before == pytest.approx(1000.0)


def test_what_no_sensor_has_read_is_neither_used_nor_idle() -> None:
    watch = Watch()
    watch.say(gpu(0, 0.0, silent=True), gpu(1, None))
    assert watch.sums.measured_gpu_seconds == 0.0
    assert watch.sums.idle_gpu_seconds == 0.0
    assert watch.ledger.idle[watch.key] is None
    # the agent was away
    watch.say(gpu(0, 0.0), gpu(1, 0.0), seconds=10 * LONGEST_SECONDS)
    assert watch.sums.idle_gpu_seconds == pytest.approx(2 * LONGEST_SECONDS)


def test_a_gang_is_idle_since_the_last_of_its_nodes_is_and_until_one_of_its_gpus_works() -> (
    None
):
    watch = Watch()
    for _ in range(2):
        watch.say(gpu(0, 0.0), gpu(1, 0.01))
    assert watch.ledger.idle[watch.key] is None, "of the other node nothing is known"
    began = watch.at
    watch.say(gpu(0, 0.0), gpu(1, 0.0), on=N2)
    watch.say(gpu(0, 0.0), gpu(1, 0.0), on=N1)
    assert watch.ledger.idle[watch.key] == began
    watch.say(gpu(0, 0.9), gpu(1, 0.0), on=N1)
    assert watch.ledger.idle[watch.key] is None


def test_sums_are_written_once_a_minute_and_never_twice() -> None:
    watch = Watch()
    nothing = Changes()
    watch.say(gpu(0, 1.0))
    assert watch.ledger.flushed(nothing, watch.at) == nothing
    written = watch.ledger.flushed(nothing, watch.at + FLUSH_SECONDS)
    (row,) = written.accounts
    assert row.job == watch.job
    assert row.amounts.used_gpu_seconds == pytest.approx(10.0)
    assert watch.ledger.flushed(nothing, watch.at + 3 * FLUSH_SECONDS) == nothing


def test_what_somebody_else_holds_and_what_is_let_go_counts_for_nobody() -> None:
    watch = Watch()
    world = watch.cluster.world
    world.allocations = {
        key: replace(one, seat=replace(one.seat, gpus=(0,), gpu_millis=500))
        for key, one in world.allocations.items()
    }
    watch.say(gpu(0, 1.0), gpu(1, 1.0))
    assert watch.sums.used_gpu_seconds == pytest.approx(5.0), "it holds half of one GPU"
    world.allocations = {}
    watch.say(gpu(0, 1.0), gpu(1, 1.0))
    assert watch.sums.used_gpu_seconds == pytest.approx(5.0)
    assert watch.ledger.idle == {}


def test_readings_of_pretend_gpus_are_not_counted() -> None:
    watch = Watch()
    for _ in range(3):
        watch.say(
            gpu(0, 0.9, pretend=True, power_watts=400.0), gpu(1, 0.0, pretend=True)
        )
    assert watch.sums == UsageAmounts()
