"""List of models that a caller may use, as OpenAI writes it."""

from collections.abc import Iterable

import msgspec

from corral.gateway.service_route import ServiceRoute


def render_models(services: Iterable[ServiceRoute]) -> bytes:
    """Return the JSON text of the model names that lead to these services."""
    models = [
        {"id": model, "object": "model", "created": 0, "owned_by": service.name}
        for service in services
        for model in service.entry.models
    ]
    return msgspec.json.encode({"object": "list", "data": models})
