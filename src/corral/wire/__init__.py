"""Shapes that travel: specs, API bodies, the agents' channel; each to and from
domain."""

from typing import Any


def schemas() -> dict[str, dict[str, Any]]:
    """JSON schema by name, each to be one file of docs/reference/schema. Loads pydantic
    only when asked."""
    from corral.wire import schema

    return schema.schemas()
