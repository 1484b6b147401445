"""Which dead nodes of Ray are proven dead, and which were taken away for good."""

import asyncio
from collections.abc import Sequence
from pathlib import Path

from corral.domain.ids import NodeId
from corral.engines.ray.dead_nodes import Deaths
from corral.engines.ray.driver import RayDriver
from corral.engines.ray.nodes import RayNode, RaySnapshot

ONE = NodeId("r1")
DRAINED = RayNode(
    id=ONE, ray_node="a1", address="10.0.0.1", alive=False, drained=True, death="d"
)
FAILED = RayNode(
    id=ONE, ray_node="a1", address="10.0.0.1", alive=False, death="no health check"
)
WITNESS = RayNode(id=NodeId("r2"), ray_node="a2", address="10.0.0.1", alive=True)


class Machine(RayDriver):
    """Nothing of any node is left on it."""

    async def lives(self, folder: str, *, witness: str) -> bool:
        return folder != "/nodes/r1"


def judged(
    row: RayNode, *beside: RayNode, scales: bool = True, sleeps: bool = False
) -> tuple[Deaths, Sequence[NodeId]]:
    """What is believed of the node, and who is let in no more."""
    revoked: list[NodeId] = []

    async def revoke(node: NodeId) -> None:
        revoked.append(node)

    deaths = Deaths(
        driver=Machine(
            address="", cluster="c", token_file="", log_file=Path("/dev/null")
        ),
        scales=scales,
        folder_there=lambda node: f"/nodes/{node}",
        revoke=revoke,
        wake=lambda: None,
    )
    for _ in range(2):
        asyncio.run(deaths.judge(row, RaySnapshot(nodes=(row, *beside)), sleeps=sleeps))
    return deaths, revoked


def test_what_the_autoscaler_took_is_gone_and_let_in_no_more() -> None:
    for row, sleeps in ((DRAINED, False), (FAILED, True)):
        deaths, revoked = judged(row, sleeps=sleeps)
        assert "autoscaler removed node" in deaths.proofs[ONE]
        assert (deaths.taken, revoked) == ({ONE}, [ONE])


def test_a_node_that_ray_gives_up_is_proven_dead_by_its_machine_alone_and_may_come_back() -> (
    None
):
    deaths, _ = judged(FAILED)
    assert deaths.proofs == {}
    deaths, revoked = judged(FAILED, WITNESS)
    assert (
        "node r2 on the same machine reports that no process of node r1 is left"
        in deaths.proofs[ONE]
    )
    assert (deaths.taken, revoked) == (set(), [])


def test_a_drained_node_of_a_ray_without_an_autoscaler_is_not_taken() -> None:
    deaths, revoked = judged(DRAINED, scales=False)
    assert (deaths.proofs, deaths.taken, revoked) == ({}, set(), [])


def test_a_node_that_ray_has_again_is_neither_dead_nor_gone() -> None:
    deaths, _ = judged(DRAINED)
    deaths.lives(ONE)
    assert (deaths.proofs, deaths.taken) == ({}, set())
