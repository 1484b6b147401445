"""Names of models in requests: each leads to a service, a revision or an adapter."""

import re
from collections.abc import Iterable
from typing import Final, NamedTuple

from corral.gateway.framing.request_body import body_with_model
from corral.gateway.framing.request_form import form_with_model
from corral.gateway.framing.request_head import RequestHead
from corral.gateway.openai_errors import GatewayCode, HeadRefused, refused
from corral.gateway.routing.service_route import ServiceRoute

SHOWN_CHARACTERS: Final = 200
_REVISION: Final = re.compile(r"[1-9][0-9]{0,9}")


class ModelTarget(NamedTuple):
    """Target of a model's name.

    Args:
        base: Name under which the replicas serve the model itself.
        revision: Revision in a name such as `chat@3`; None: any.
        adapter: Adapter in a name such as `legal` or `chat:legal`; None without one.
    """

    service: ServiceRoute
    base: str
    revision: int | None = None
    adapter: str | None = None

    @property
    def is_plain(self) -> bool:
        """Whether the replicas serve the model under the name that was given."""
        return self.revision is None and self.adapter is None


class ModelNames:
    """Names of the models of all services, and of their adapters."""

    __slots__ = ("_by_adapter", "_by_model")

    def __init__(self) -> None:
        self._by_model: dict[str, ServiceRoute] = {}
        self._by_adapter: dict[str, ServiceRoute] = {}

    def update(self, services: Iterable[ServiceRoute]) -> None:
        """Take the services of a new state."""
        self._by_model = {}
        self._by_adapter = {}
        for service in services:
            for model in service.entry.models:
                self._by_model[model] = service
            for adapter in service.adapters.by_name:
                self._by_adapter[adapter] = service

    def find(self, model: str, caller: str) -> ModelTarget:
        """Return where a name leads. Raises: HeadRefused.

        Args:
            caller: Name of the caller; what it may not call does not exist for it.
        """
        service = self._by_model.get(model)
        target = self._find_other(model) if service is None else None
        if service is not None:
            target = ModelTarget(service, model)
        if target is None or not target.service.admits(caller):
            raise _not_found(model)
        revision = target.revision
        if revision is not None and not target.service.has_revision(revision):
            raise _no_revision(target)
        return target

    def _find_other(self, model: str) -> ModelTarget | None:
        """Return where the name of a revision or an adapter leads."""
        name, at, number = model.rpartition("@")
        revision: int | None = None
        if not at:
            name = model
        elif _REVISION.fullmatch(number):
            revision = int(number)
        else:
            return None
        service = self._by_model.get(name)
        if service is not None:
            return ModelTarget(service, name, revision)
        service = self._by_adapter.get(name)
        if service is not None:
            return ModelTarget(service, service.entry.models[0], revision, name)
        base, _, adapter = name.rpartition(":")
        service = self._by_model.get(base)
        if service is None or adapter not in service.adapters.by_name:
            return None
        return ModelTarget(service, base, revision, adapter)


def _not_found(model: str) -> HeadRefused:
    return refused(
        GatewayCode.MODEL_NOT_FOUND,
        f"the model {model[:SHOWN_CHARACTERS]!r} does not exist, or you may not use it",
        param="model",
    )


def _no_revision(target: ModelTarget) -> HeadRefused:
    numbers = ", ".join(map(str, target.service.revisions))
    return refused(
        GatewayCode.MODEL_NOT_FOUND,
        f"no replica serves revision {target.revision} of {target.base!r}; "
        + (f"these revisions serve: {numbers}" if numbers else "none is ready"),
        param="model",
    )


def body_for_replicas(
    head: RequestHead, body: bytes, target: ModelTarget, *, is_form: bool
) -> bytes:
    """Return the body with the name under which replicas serve the model. Raises:
    HeadRefused."""
    if not is_form:
        return body_with_model(body, target.base)
    if target.adapter is not None:
        raise refused(
            GatewayCode.BAD_REQUEST,
            "a form cannot name an adapter; send the request as JSON",
            param="model",
        )
    return form_with_model(head.content_type, body, target.base)
