"""Formats of data in transit: specs, API bodies, and the agents' channel, and their
conversion from and to domain objects."""

from typing import Any


def schemas() -> dict[str, dict[str, Any]]:
    """Return each JSON schema by name, for one file of docs/reference/schema each.
    Pydantic is loaded only when this is called."""
    from corral.wire import schema

    return schema.schemas()
