"""Reasons why an attempt that was placed on nodes of Ray has not begun. Pure.

Source: https://docs.ray.io/en/latest/ray-core/api/exceptions.html
"""

from collections.abc import Mapping
from typing import Final

from corral.domain.ids import NodeId
from corral.engines.ray.nodes import RayNode

_TROUBLES: Final[Mapping[str, str]] = {
    "ActorDiedError": "its actor has died, and Ray starts it again",
    "ActorUnavailableError": "its actor does not answer Ray now",
    "ActorUnschedulableError": "Ray has lost the node in between",
    "GetTimeoutError": "its actor does not answer in time",
    "OutOfMemoryError": "Ray has ended its actor, for the machine is short of memory",
    "RuntimeEnvSetupError": "Ray cannot make an environment for its actor",
}


def why_not_begun(
    node: NodeId, row: RayNode | None, *, trouble: str, heard: bool
) -> str:
    """Return a sentence for `corral why`; "" if the attempt does not wait for Ray.
    `row`: the node as Ray reports it; None if Ray does not know it. `trouble`: why the
    node has no agent. `heard`: whether the node's agent is connected."""
    if heard:
        return ""
    if row is None:
        return f"Ray knows no node {node} yet"
    if not row.alive:
        return (
            f"Ray has lost node {node}: {row.death}; what was begun there may live, so that only "
            "proof or the bound of silence ends it"
        )
    if trouble:
        return f"node {node} has no agent yet: {in_our_words(trouble)}"
    return f"the agent of node {node} is not connected yet"


def in_our_words(trouble: str) -> str:
    """Return a sentence about an error of Ray, given as `NAME: TEXT`; Ray's own name of
    the error is appended in brackets."""
    name, _, text = trouble.partition(":")
    known_text = _TROUBLES.get(name)
    return (
        f"{known_text} ({name})" if known_text else f"Ray says {text.strip() or name}"
    )
