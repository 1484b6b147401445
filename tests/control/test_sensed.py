"""What is known of a node whose parts tell of it, and when it is known no more."""

from corral.control.gpu_usage import GpuUsage
from corral.control.latest_samples import PART_SECONDS, Sensed
from corral.domain.ids import AttemptNumber, JobId, NodeId
from corral.domain.pilot import part_of
from corral.domain.telemetry import GpuSample, NodeSample
from tests.worlds import Cluster, gang, node

N1 = NodeId("n1")
A, B = (part_of(N1, (JobId(name), AttemptNumber(1))) for name in ("ja", "jb"))


def said(at: float, *use: tuple[int, float]) -> NodeSample:
    gpus = (
        GpuSample(index=index, uuid=f"GPU-{index}", utilisation=share)
        for index, share in use
    )
    return NodeSample(at=at, gpus=tuple(gpus))


def uses(sensed: Sensed) -> dict[int, float | None]:
    return {gpu.index: gpu.utilisation for gpu in sensed.newest[N1].gpus}


def test_parts_of_one_node_are_one_node_to_whoever_listens() -> None:
    sensed, heard = Sensed(), list[tuple[str, list[int]]]()
    sensed.listen(
        lambda node, it, _: heard.append((node, [gpu.index for gpu in it.gpus]))
    )
    sensed.take(A, said(1.0, (0, 0.5)), 101.0)
    sensed.take(B, said(6.0, (1, 0.6)), 106.0)
    sensed.take(A, said(11.0, (0, 0.7)), 111.0)
    assert heard == [("n1", [0]), ("n1", [0, 1]), ("n1", [0, 1])]
    assert uses(sensed) == {0: 0.7, 1: 0.6}
    assert list(sensed.newest) == ["n1"]


def test_what_a_part_that_has_left_said_is_unknown_and_not_frozen() -> None:
    sensed = Sensed()
    sensed.take(A, said(1.0, (0, 0.5)), 101.0)
    sensed.take(B, said(6.0, (1, 0.6)), 106.0)
    sensed.left(A, 107.0)
    assert uses(sensed) == {1: 0.6}
    sensed.left(B, 108.0)
    assert N1 not in sensed.newest
    sensed.left(B, 109.0)
    assert (sensed.parts(N1), sensed.newest) == (0, {})


def test_a_part_that_says_nothing_more_is_dropped_when_its_sample_is_old() -> None:
    sensed = Sensed()
    sensed.take(A, said(1.0, (0, 0.5)), 100.0)
    sensed.take(B, said(6.0, (1, 0.6)), 110.0)
    sensed.age(100.0 + PART_SECONDS)
    assert uses(sensed) == {0: 0.5, 1: 0.6}
    sensed.age(101.0 + PART_SECONDS)
    assert uses(sensed) == {1: 0.6}
    sensed.age(111.0 + PART_SECONDS)
    assert N1 not in sensed.newest


def test_a_gpu_that_was_given_back_is_unknown_until_its_next_holder_tells_of_it() -> (
    None
):
    cluster = Cluster(node("n1"))
    first, second = cluster.submit(gang(gpus=1)), cluster.submit(gang(gpus=1))
    seats = {
        job: cluster.world.attempts[job].seats[0].gpus[0] for job in (first, second)
    }
    parts = {job: part_of(N1, (job, AttemptNumber(1))) for job in (first, second)}
    sensed = Sensed(lambda: cluster.world)
    for at, job in enumerate((first, second)):
        sensed.take(parts[job], said(at, (seats[job], 0.5)), 100.0 + at)
    assert uses(sensed).keys() == set(seats.values())
    del cluster.world.allocations[first, AttemptNumber(1), N1]
    sensed.take(parts[second], said(11.0, (seats[second], 0.6)), 111.0)
    assert uses(sensed) == {seats[second]: 0.6}


def test_the_ledger_counts_each_second_of_a_gpu_once_though_parts_speak_in_turn() -> (
    None
):
    cluster = Cluster(node("n1"))
    jobs = [cluster.submit(gang(gpus=1)) for _ in range(2)]
    for job in jobs:
        cluster.up(job)
    sensed, ledger = Sensed(lambda: cluster.world), GpuUsage()
    sensed.listen(lambda *heard: ledger.take(cluster.world, *heard))
    began = cluster.wall + 100.0
    for turn in range(12):  # each part each 10 s, one 5 s after the other
        job, at = jobs[turn % 2], began + 5.0 * turn
        seat = cluster.world.attempts[job].seats[0].gpus[0]
        gpu = GpuSample(
            index=seat, uuid=f"GPU-{seat}", utilisation=0.5 if turn % 2 else 0.0,
            energy_joules=1000.0 * (turn // 2),
        )  # fmt: skip
        teller = part_of(N1, (job, AttemptNumber(1)))
        sensed.take(teller, NodeSample(at=at, seconds=10.0, gpus=(gpu,)), at)
    sums = {one.job: one.amounts for one in ledger.waiting()}
    idle, works = (sums[job] for job in jobs)
    assert (idle.measured_gpu_seconds, idle.used_gpu_seconds) == (10.0 + 55.0, 0.0)
    assert (works.measured_gpu_seconds, works.used_gpu_seconds) == (55.0, 27.5)
    assert (idle.energy_joules, works.energy_joules) == (5000.0, 5000.0)
