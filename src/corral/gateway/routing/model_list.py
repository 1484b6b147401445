"""Models that a caller may use, as OpenAI writes them."""

from collections.abc import Iterable, Iterator

import msgspec

from corral.gateway.routing.model_names import ModelTarget
from corral.gateway.routing.service_route import ServiceRoute


def render_models(services: Iterable[ServiceRoute]) -> bytes:
    """Return the JSON text of the model names that lead to these services."""
    models = [model for service in services for model in _models_of(service)]
    return msgspec.json.encode({"object": "list", "data": models})


def render_model(model: str, target: ModelTarget) -> bytes:
    """Return the JSON text of one model name."""
    entry = _model_object(model, target.service.name)
    if target.adapter is not None:
        entry["parent"] = target.base
    return msgspec.json.encode(entry)


def _models_of(service: ServiceRoute) -> Iterator[dict[str, object]]:
    names = service.entry.models
    for model in names:
        yield _model_object(model, service.name)
    for adapter in service.adapters.by_name:
        yield {**_model_object(adapter, service.name), "parent": names[0]}


def _model_object(model: str, service: str) -> dict[str, object]:
    return {"id": model, "object": "model", "created": 0, "owned_by": service}
