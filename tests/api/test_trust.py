"""What a part may tell of, and ask for: its own attempt, and nothing else of the
node."""

from corral.api.node_trust import believed, believed_signals, holds, needs_snapshot
from corral.domain.attempt import Exit
from corral.domain.ids import AttemptNumber, NodeId
from corral.domain.node_signal import Signal, SignalKind
from corral.domain.observed_state import Phase, Seen
from corral.domain.pilot import part_of
from tests.worlds import Cluster, gang, node

N1 = NodeId("n1")
FIRST = AttemptNumber(1)


def signal(
    gpu: int | None, kind: SignalKind = SignalKind.XID, number: int = 1
) -> Signal:
    return Signal(number=number, at=1.0, kind=kind, code=79, gpu=gpu, text="XID 79")


def test_of_a_parts_signals_those_of_its_own_gpus_count_and_as_its_own() -> None:
    cluster = Cluster(node("n1"))
    mine, other = cluster.submit(gang(gpus=1)), cluster.submit(gang(gpus=1))
    (gpu,), (foreign,) = (
        cluster.world.attempts[job].seats[0].gpus for job in (mine, other)
    )
    part = part_of(N1, (mine, FIRST))
    told = [signal(gpu), signal(foreign), signal(None), signal(gpu, SignalKind.SILENT)]
    (kept,) = believed_signals(cluster.world, part, told)
    assert (kept.gpu, kept.told_by, kept.attempts) == (gpu, part, ((mine, FIRST),))
    del cluster.world.allocations[mine, FIRST, N1]
    assert len(believed_signals(cluster.world, part, told)) == 1, (
        "its end may be on its way"
    )
    fenced = part_of(N1, (mine, AttemptNumber(7)))
    assert believed_signals(cluster.world, fenced, told) == ()
    assert (
        believed_signals(cluster.world, part_of(NodeId("n2"), (mine, FIRST)), told)
        == ()
    )
    assert believed_signals(cluster.world, N1, told) == ()


def test_a_part_speaks_for_its_own_attempt_and_is_given_what_that_needs_alone() -> None:
    """Whoever shows its token: in a pod its ranks may have the account of its agent."""
    cluster = Cluster(node("n1"))
    mine = cluster.submit(gang(gpus=1, workdir="a" * 64))
    other = cluster.submit(gang(gpus=1, workdir="b" * 64))
    part, world = part_of(N1, (mine, FIRST)), cluster.world
    ended = [
        Seen(key=(job, FIRST), phase=Phase.ENDED, exits=((0, Exit(code=0)),))
        for job in (mine, other)
    ]
    assert believed(world, part, ended) == ((ended[0],), 1)
    assert [holds(world, part, job, FIRST) for job in (mine, other)] == [True, False]
    assert [needs_snapshot(world, part, digit * 64) for digit in "ab"] == [True, False]
    assert [needs_snapshot(world, N1, digit * 64) for digit in "ab"] == [True, True]
