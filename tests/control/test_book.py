"""The word of a node is made anew only when something of it is, and is then never an
old one."""

from dataclasses import replace

import pytest

from corral.control.desired_versions import Book
from corral.domain.attempt import Save, SeatState
from corral.domain.desired_state import DesiredState
from corral.domain.ids import AttemptNumber, BootId, JobId, NodeId
from corral.domain.job_states import JobState, StopWhy
from corral.domain.observed_state import NodeFacts, Phase, Seen
from corral.domain.world import Changes, World
from corral.reconcile import wanted_of
from corral.simulate.scenario import simulate
from tests.worlds import Cluster, gang, node

N1, N2 = NodeId("n1"), NodeId("n2")


@pytest.fixture
def unchanged(monkeypatch: pytest.MonkeyPatch) -> list[NodeId]:
    """Each word that is not made anew is made beside it, and has to be the same."""
    found: list[NodeId] = []
    renewed = Book.renewed

    def checked(
        self: Book, world: World, node: NodeId, heard: NodeFacts | None
    ) -> DesiredState | None:
        word = renewed(self, world, node, heard)
        if word is None:
            last = self._told[node]
            assert (
                wanted_of(world, node, self._held[node].values(), heard, last.version)
                == last
            )
            found.append(node)
        return word

    monkeypatch.setattr(Book, "renewed", checked)
    return found


@pytest.mark.parametrize("seed", range(6))
def test_no_word_is_older_than_what_is_known(
    seed: int, unchanged: list[NodeId]
) -> None:
    outcome = simulate(seed)
    assert not outcome.rule, outcome.text
    assert unchanged


def heard(*seen: Seen) -> NodeFacts:
    inventory = node("n1").inventory
    return NodeFacts(
        node=N1, boot=BootId("boot-n1"), heard_at=1.0, inventory=inventory, seen=seen
    )


def seen(phase: Phase) -> NodeFacts:
    """Of an attempt that was replaced long ago."""
    return heard(Seen(key=(JobId("j1"), AttemptNumber(0)), phase=phase))


SAVE = Save(
    job=JobId("j1"), attempt=AttemptNumber(1), step=5, path="/shared/5", manifest_sha256="0" * 64,
    size_bytes=1, seconds=1.0, stall_seconds=0.0, at=1.0,
)  # fmt: skip


@pytest.mark.parametrize(
    "part", ["job", "attempt", "seat", "save", "boot", "seen", "phase"]
)
def test_whatever_is_new_of_its_parts_a_word_is_made_anew(part: str) -> None:
    cluster, book = Cluster(node("n1")), Book()
    id = cluster.submit(gang(gpus=2))
    world = cluster.world
    job, attempt = world.jobs[id], world.attempts[id]
    (seat,) = world.allocations.values()
    before = seen(Phase.UP) if part == "phase" else heard()
    book.newest(world, N1, before)
    assert book.renewed(world, N1, before) is None
    changes = {
        "job": Changes(
            jobs=(replace(job, state=JobState.STOPPING, why=StopWhy.CANCEL),)
        ),
        "attempt": Changes(attempts=(replace(attempt, warned_at=1.0),)),
        "seat": Changes(allocations=(replace(seat, state=SeatState.STOPPING),)),
        "save": Changes(saves=(SAVE,)),
        "boot": Changes(nodes=(replace(world.nodes[N1], boot=BootId("boot-2")),)),
    }.get(part, Changes())
    now = {"seen": seen(Phase.UP), "phase": seen(Phase.ENDED)}.get(part, before)
    world.apply(changes)
    book.index(world, changes)
    assert book.renewed(world, N1, now) is not None


def test_a_gang_is_told_anew_where_its_nodes_are_when_one_has_moved() -> None:
    cluster, book = Cluster(node("n1"), node("n2")), Book()
    job = cluster.submit(gang(nodes=2, gpus=2))
    word = book.newest(cluster.world, N1, None)
    assert [launch.key[0] for launch in word.run] == [job]
    assert book.renewed(cluster.world, N1, None) is None
    moved = Changes(nodes=(replace(cluster.world.nodes[N2], address="10.0.0.7"),))
    cluster.world.apply(moved)
    book.index(cluster.world, moved)
    told = book.renewed(cluster.world, N1, None)
    assert told is not None
    assert "10.0.0.7" in told.run[0].nodes
    assert told.version > word.version
