"""API calls for models on nodes, each as an ApiCall value, and the methods of Client and
AsyncClient for them."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, TypeVar

from corral.client.api_calls import ApiCall, read_as

if TYPE_CHECKING:
    from corral.wire import model_answers as shapes

T = TypeVar("T")


def models_call() -> "ApiCall[shapes.ModelsView]":
    return ApiCall(
        method="GET", path="/v1/models", read=read_as("model_answers.ModelsView")
    )


def pull_model_call(
    source: str,
    *,
    nodes: Sequence[str],
    all_nodes: bool,
    pinned: bool | None,
    secrets: Sequence[str],
    env: Mapping[str, str],
) -> "ApiCall[shapes.ModelAsked]":
    return ApiCall(
        method="POST",
        path="/v1/models/pull",
        json={
            "source": source,
            "nodes": list(nodes),
            "all_nodes": all_nodes,
            "pinned": pinned,
            "secrets": list(secrets),
            "env": dict(env),
        },
        read=read_as("model_answers.ModelAsked"),
    )


def remove_model_call(name: str, nodes: Sequence[str]) -> "ApiCall[shapes.ModelAsked]":
    return ApiCall(
        method="POST",
        path="/v1/models/remove",
        json={"name": name, "nodes": list(nodes)},
        read=read_as("model_answers.ModelAsked"),
        repeatable=False,
    )


class SyncModels:
    """Methods of `Client` for models on nodes."""

    def _call(self, call: ApiCall[T]) -> T:
        raise NotImplementedError

    def models(self) -> "shapes.ModelsView":
        """Return the models that nodes have or are fetching. For example:

        for model in client.models().models:
            print(model.name, [node.node for node in model.nodes])
        """
        return self._call(models_call())

    def pull_model(
        self,
        source: str,
        *,
        nodes: Sequence[str] = (),
        all_nodes: bool = False,
        pinned: bool | None = None,
        secrets: Sequence[str] = (),
        env: Mapping[str, str] | None = None,
    ) -> "shapes.ModelAsked":
        """Let nodes fetch a model, and return these nodes. The fetch goes on after the
        answer. For example:

            client.pull_model("hf://org/name@main", all_nodes=True, pinned=True)
        """
        call = pull_model_call(
            source,
            nodes=nodes,
            all_nodes=all_nodes,
            pinned=pinned,
            secrets=secrets,
            env=env or {},
        )
        return self._call(call)

    def remove_model(
        self, name: str, *, nodes: Sequence[str] = ()
    ) -> "shapes.ModelAsked":
        """Remove a model from nodes; without `nodes`, from all. For example:

        client.remove_model("hf://org/name@main")
        """
        return self._call(remove_model_call(name, nodes))


class AsyncModels:
    """Methods of `AsyncClient` for models on nodes."""

    async def _call(self, call: ApiCall[T]) -> T:
        raise NotImplementedError

    async def models(self) -> "shapes.ModelsView":
        """Return the models that nodes have or are fetching."""
        return await self._call(models_call())

    async def pull_model(
        self,
        source: str,
        *,
        nodes: Sequence[str] = (),
        all_nodes: bool = False,
        pinned: bool | None = None,
        secrets: Sequence[str] = (),
        env: Mapping[str, str] | None = None,
    ) -> "shapes.ModelAsked":
        """Let nodes fetch a model, and return these nodes. The fetch goes on after the
        answer."""
        call = pull_model_call(
            source,
            nodes=nodes,
            all_nodes=all_nodes,
            pinned=pinned,
            secrets=secrets,
            env=env or {},
        )
        return await self._call(call)

    async def remove_model(
        self, name: str, *, nodes: Sequence[str] = ()
    ) -> "shapes.ModelAsked":
        """Remove a model from nodes; without `nodes`, from all."""
        return await self._call(remove_model_call(name, nodes))
