"""What several parts of one node say is one sample of the node."""

import pytest

from corral.domain.attempt import Allocation, Seat
from corral.domain.ids import AttemptNumber, ClusterId, JobId, NodeId
from corral.domain.merge_samples import granted, united
from corral.domain.pilot import part_of
from corral.domain.telemetry import DiskSample, GpuSample, NodeSample
from corral.domain.world import World

N1 = NodeId("n1")
KEY = (JobId("j1"), AttemptNumber(1))


def gpus(**use: float) -> tuple[GpuSample, ...]:
    return tuple(
        GpuSample(index=int(name[1:]), uuid=f"GPU-{name[1:]}", utilisation=share)
        for name, share in use.items()
    )


def test_gpus_are_united_and_the_machine_is_as_the_newest_that_knows_it_says() -> None:
    first = NodeSample(
        at=10.0, cpu_utilisation=0.5, memory_total_bytes=8, gpus=gpus(g0=0.1, g3=0.3),
        disks=(DiskSample(path="/tmp"),),
    )  # fmt: skip
    second = NodeSample(
        at=14.0, cpu_utilisation=0.7, memory_total_bytes=8, gpus=gpus(g1=0.2)
    )
    found = united([second, first])
    assert [(one.index, one.utilisation) for one in found.gpus] == [
        (0, 0.1),
        (1, 0.2),
        (3, 0.3),
    ]
    assert (found.at, found.cpu_utilisation, found.disks) == (14.0, 0.7, ())
    hung = NodeSample(at=20.0, silent=("sensors",), gpus=gpus(g2=0.9))
    found = united([first, hung, second])
    assert (found.at, found.cpu_utilisation, found.silent) == (14.0, 0.7, ())
    assert [one.index for one in found.gpus] == [0, 1, 2, 3]


def test_of_a_gpu_that_two_tell_of_the_newest_word_counts() -> None:
    old, new = (
        NodeSample(at=1.0, gpus=gpus(g0=0.1)),
        NodeSample(at=2.0, gpus=gpus(g0=0.9)),
    )
    assert [one.utilisation for one in united([new, old]).gpus] == [0.9]
    with pytest.raises(ValueError, match="empty"):
        united([])


def test_a_part_speaks_of_the_gpus_that_its_attempt_holds_and_of_no_other() -> None:
    seat = Seat(node=N1, gpus=(2, 3), gpu_millis=2000)
    held = Allocation(job=KEY[0], attempt=KEY[1], seat=seat)
    world = World(cluster=ClusterId("c"), term=1, allocations={(*KEY, N1): held})
    said = NodeSample(at=1.0, gpus=gpus(g1=0.1, g2=0.2))
    assert [gpu.index for gpu in granted(world, part_of(N1, KEY), said).gpus] == [2]
    later = part_of(N1, (KEY[0], AttemptNumber(2)))
    assert granted(world, later, said).gpus == ()
    assert granted(world, part_of(NodeId("n2"), KEY), said).gpus == ()
