"""Ray's own reasons, in our words."""

import pytest

from corral.domain.ids import NodeId
from corral.engines.ray.nodes import RayNode
from corral.engines.ray.reasons import in_our_words, why_not_begun

NODE = NodeId("r2")


def row(*, alive: bool = True, death: str = "") -> RayNode:
    return RayNode(id=NODE, ray_node="a1", address="10.0.0.2", alive=alive, death=death)


@pytest.mark.parametrize(
    ("seen", "trouble", "says"),
    [
        (None, "", "node r2 is not in the Ray cluster yet"),
        (row(), "", "the agent of node r2 is not connected yet"),
        (
            row(),
            "GetTimeoutError: 20 s",
            "has no agent yet: its Ray actor does not answer in time",
        ),
        (
            row(alive=False, death="missed health checks"),
            "",
            "lost node r2: missed health checks",
        ),
    ],
    ids=["unknown", "starts", "trouble", "dead"],
)
def test_what_an_attempt_on_a_node_of_ray_waits_for_is_told(
    seen: RayNode | None, trouble: str, says: str
) -> None:
    assert says in why_not_begun(NODE, seen, trouble=trouble, heard=False)
    assert why_not_begun(NODE, seen, trouble=trouble, heard=True) == ""


def test_what_ray_raises_that_nobody_here_knows_is_told_as_it_is() -> None:
    assert in_our_words("Odd: so it is") == "Ray reports: so it is"
    assert in_our_words("Odd") == "Ray reports: Odd"
    assert in_our_words("ActorDiedError: x").endswith("(ActorDiedError)")
