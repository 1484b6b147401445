"""Reasons why an attempt that was placed on nodes of Ray has not begun. Pure.

Source: https://docs.ray.io/en/latest/ray-core/api/exceptions.html
"""

from collections.abc import Mapping
from typing import Final

from corral.domain.ids import NodeId
from corral.engines.ray.nodes import RayNode

_TROUBLES: Final[Mapping[str, str]] = {
    "ActorDiedError": "its Ray actor died and is restarted",
    "ActorUnavailableError": "its Ray actor does not answer now",
    "ActorUnschedulableError": "Ray lost the node in the meantime",
    "GetTimeoutError": "its Ray actor does not answer in time",
    "OutOfMemoryError": "Ray ended its actor because the machine is short of memory",
    "RuntimeEnvSetupError": "Ray cannot create the environment of its actor",
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
        return f"node {node} is not in the Ray cluster yet"
    if not row.alive:
        return (
            f"Ray lost node {node}: {row.death}; its processes may still run, so the "
            "job ends only when the node is proven dead or is silent for too long"
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
        f"{known_text} ({name})"
        if known_text
        else f"Ray reports: {text.strip() or name}"
    )
