"""Corral makes one GPU cluster out of the GPU machines that a team has.

Importing the package loads nothing heavy: `corral.Client` and the errors that it raises
are loaded on first use.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from corral.client import AsyncClient, Client
    from corral.domain.errors import CorralError, Refusal, Trouble

__version__ = "0.1.0"
__all__ = ["AsyncClient", "Client", "CorralError", "Refusal", "Trouble", "__version__"]


def __getattr__(name: str) -> object:
    if name in ("CorralError", "Refusal", "Trouble"):
        from corral.domain import errors

        return getattr(errors, name)
    if name not in ("Client", "AsyncClient"):
        raise AttributeError(f"module 'corral' has no attribute {name!r}")
    from corral import client

    return getattr(client, name)
