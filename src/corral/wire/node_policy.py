"""policy.json: the policy of a node as a file on the node, which only its owner may
write."""

import os
from dataclasses import fields
from functools import lru_cache
from typing import Any, Final

import msgspec

from corral.domain.node_policy import NodePolicy

POLICY_FILE: Final = "policy.json"
_FIELDS: Final = tuple(field.name for field in fields(NodePolicy))


def own_policy() -> NodePolicy:
    """Return the policy for nodes that this process's account starts. It lets root run
    jobs only if this account is root."""
    return NodePolicy(root="allow" if os.geteuid() == 0 else "refuse")


def encode_policy(policy: NodePolicy) -> bytes:
    """Return the policy as the text of policy.json, without fields that have their
    default."""
    default = NodePolicy()
    values = {name: getattr(policy, name) for name in _FIELDS}
    changed = {
        name: field_value
        for name, field_value in values.items()
        if field_value != getattr(default, name)
    }
    return msgspec.json.format(msgspec.json.encode(changed), indent=2) + b"\n"


@lru_cache(maxsize=4)  # read at each start, but it rarely changes
def decode_policy(text: bytes) -> NodePolicy:
    """Read the policy from the text of policy.json.

    Raises: ValueError with the field that is wrong or unknown.
    """
    policy_fields: dict[str, Any] = msgspec.json.decode(text, type=dict[str, Any])
    if unknown := sorted(policy_fields.keys() - set(_FIELDS)):
        raise ValueError(
            f"{unknown[0]!r} is not a field of policy.json; use one of: "
            f"{', '.join(_FIELDS)}"
        )
    return msgspec.convert(policy_fields, NodePolicy)
