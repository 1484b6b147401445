"""API calls about machines that join and leave, each as an ApiCall value, and the
methods of Client and AsyncClient for them.

As in `api_calls`, pydantic is loaded when the first answer arrives.
"""

from typing import TYPE_CHECKING, TypeVar

from corral.client.api_calls import ApiCall, quoted, read_as

if TYPE_CHECKING:
    from corral.wire import api, joining

T = TypeVar("T")


def create_join_token(
    uses: int, expires_seconds: float
) -> "ApiCall[joining.JoinTokenMade]":
    body = {"uses": uses, "expires_seconds": expires_seconds}
    return ApiCall(
        method="POST",
        path="/v1/nodes/tokens",
        json=body,
        read=read_as("joining.JoinTokenMade"),
        repeatable=False,
    )


def remove_node(name: str, force: bool) -> ApiCall[None]:
    query = {"force": int(force)}
    return ApiCall(
        method="DELETE",
        path=_node_path(name),
        query=query,
        read=lambda body: None,
        repeatable=False,
    )


def declare_dead(name: str) -> "ApiCall[api.NodeDetail]":
    return ApiCall(
        method="POST", path=f"{_node_path(name)}/dead", read=read_as("api.NodeDetail")
    )


def clear_node(name: str) -> "ApiCall[api.NodeDetail]":
    return ApiCall(
        method="POST", path=f"{_node_path(name)}/clear", read=read_as("api.NodeDetail")
    )


def cordon_suspects() -> "ApiCall[list[api.NodeView]]":
    return ApiCall(
        method="POST",
        path="/v1/suspects/cordon",
        read=lambda body: read_as("api.Nodes")(body).nodes,
    )


def _node_path(name: str) -> str:
    return f"/v1/nodes/{quoted('node', name, 'corral node ls')}"


class SyncNodes:
    """Methods of `Client` for machines that join and leave."""

    def _call(self, call: ApiCall[T]) -> T:
        raise NotImplementedError

    def create_join_token(
        self, *, uses: int = 1, expires_seconds: float = 900.0
    ) -> "joining.JoinTokenMade":
        """Create a token with which `uses` machines can join. Its secret is in this
        answer only and cannot be read later."""
        return self._call(create_join_token(uses, expires_seconds))

    def remove_node(self, name: str, *, force: bool = False) -> None:
        """Revoke the token of the node and remove the node. With `force`, remove the
        node even while it holds jobs."""
        self._call(remove_node(name, force))

    def declare_dead(self, name: str) -> "api.NodeDetail":
        """Record an operator's statement that a silent node is dead. The resources that
        its jobs held are free at once."""
        return self._call(declare_dead(name))

    def clear_node(self, name: str) -> "api.NodeDetail":
        """Confirm as an operator that all faults of the node are repaired."""
        return self._call(clear_node(name))

    def cordon_suspects(self) -> "list[api.NodeView]":
        """Cordon all suspect nodes. These are nodes that the health rules would cordon,
        but whose cordon they have left to an operator. Return these nodes."""
        return self._call(cordon_suspects())


class AsyncNodes:
    """Methods of `AsyncClient` for machines that join and leave."""

    async def _call(self, call: ApiCall[T]) -> T:
        raise NotImplementedError

    async def create_join_token(
        self, *, uses: int = 1, expires_seconds: float = 900.0
    ) -> "joining.JoinTokenMade":
        return await self._call(create_join_token(uses, expires_seconds))

    async def remove_node(self, name: str, *, force: bool = False) -> None:
        await self._call(remove_node(name, force))

    async def declare_dead(self, name: str) -> "api.NodeDetail":
        return await self._call(declare_dead(name))

    async def clear_node(self, name: str) -> "api.NodeDetail":
        return await self._call(clear_node(name))

    async def cordon_suspects(self) -> "list[api.NodeView]":
        return await self._call(cordon_suspects())
