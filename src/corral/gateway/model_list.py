"""Models that a caller may use, as OpenAI writes them."""

from collections.abc import Iterable

import msgspec

from corral.gateway.service_route import ServiceRoute


def render_models(services: Iterable[ServiceRoute]) -> bytes:
    """Return the JSON text of the model names that lead to these services."""
    models = [
        _model_object(model, service.name)
        for service in services
        for model in service.entry.models
    ]
    return msgspec.json.encode({"object": "list", "data": models})


def render_model(model: str, service: str) -> bytes:
    """Return the JSON text of one model name that leads to this service."""
    return msgspec.json.encode(_model_object(model, service))


def _model_object(model: str, service: str) -> dict[str, object]:
    return {"id": model, "object": "model", "created": 0, "owned_by": service}
