"""Corral from Python: `Client`, and `AsyncClient` with the same methods as coroutines.

Each class is loaded at its first use, so that a command without asyncio does not import
it.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from corral.client.async_client import AsyncClient
    from corral.client.client import Client

__all__ = ["AsyncClient", "Client"]


def __getattr__(name: str) -> object:
    if name == "Client":
        from corral.client.client import Client

        return Client
    if name == "AsyncClient":
        from corral.client.async_client import AsyncClient

        return AsyncClient
    raise AttributeError(f"module 'corral.client' has no attribute {name!r}")
