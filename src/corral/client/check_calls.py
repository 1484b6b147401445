"""Calls about active checks, as values, and the methods of both clients for them.

As in `api_calls`, pydantic is loaded when the first answer arrives.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, TypeVar

from corral.client.api_calls import ApiCall, quoted, read_as

if TYPE_CHECKING:
    from corral.wire import api

T = TypeVar("T")


def check_nodes(
    kinds: Sequence[str],
    nodes: Sequence[str],
    paths: Sequence[str],
    seconds: float,
    max_wait_seconds: float,
) -> "ApiCall[api.Checkup]":
    body = {
        "kinds": list(kinds),
        "nodes": list(nodes),
        "paths": list(paths),
        "seconds": seconds,
        "max_wait_seconds": max_wait_seconds,
    }
    return ApiCall(
        method="POST",
        path="/v1/checkups",
        json=body,
        read=read_as("api.Checkup"),
        repeatable=False,
    )


def checkup(id: str) -> "ApiCall[api.Checkup]":
    return ApiCall(
        method="GET",
        path=f"/v1/checkups/{quoted('check-up', id, 'corral node ls')}",
        read=read_as("api.Checkup"),
    )


class SyncChecks:
    """Methods of `Client` for active checks."""

    def _call(self, call: ApiCall[T]) -> T:
        raise NotImplementedError

    def check_nodes(
        self,
        kinds: Sequence[str],
        *,
        nodes: Sequence[str] = (),
        paths: Sequence[str] = (),
        seconds: float = 5.0,
        max_wait_seconds: float = 60.0,
    ) -> "api.Checkup":
        """Start checks of these kinds on the nodes, or on all nodes. Each node is
        checked as soon as nothing runs there. `paths`: folders to use."""
        return self._call(check_nodes(kinds, nodes, paths, seconds, max_wait_seconds))

    def checkup(self, id: str) -> "api.Checkup":
        """Return the progress and the results so far of the checks with this id."""
        return self._call(checkup(id))


class AsyncChecks:
    """Methods of `AsyncClient` for active checks."""

    async def _call(self, call: ApiCall[T]) -> T:
        raise NotImplementedError

    async def check_nodes(
        self,
        kinds: Sequence[str],
        *,
        nodes: Sequence[str] = (),
        paths: Sequence[str] = (),
        seconds: float = 5.0,
        max_wait_seconds: float = 60.0,
    ) -> "api.Checkup":
        return await self._call(
            check_nodes(kinds, nodes, paths, seconds, max_wait_seconds)
        )

    async def checkup(self, id: str) -> "api.Checkup":
        return await self._call(checkup(id))
