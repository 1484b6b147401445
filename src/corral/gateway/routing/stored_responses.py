"""Requests for responses that a replica keeps: to read, cancel or delete one."""

from collections.abc import Iterable
from typing import Final

from corral.gateway.access.callers import GatewayCaller
from corral.gateway.framing.request_head import RequestHead
from corral.gateway.openai_errors import (
    GatewayCode,
    GatewayRefusal,
    HeadRefused,
    refused,
)
from corral.gateway.routing.exchange_targets import ExchangeTarget
from corral.gateway.routing.service_route import ServiceRoute

RESPONSES_PREFIX: Final = b"/v1/responses/"
SHOWN_CHARACTERS: Final = 200
# methods by what follows the id in the path
_METHODS: Final = {
    b"": frozenset({b"GET", b"DELETE"}),
    b"input_items": frozenset({b"GET"}),
    b"cancel": frozenset({b"POST"}),
}


def is_of_response(head: RequestHead) -> bool:
    """Return whether the request is for one stored response."""
    return head.path.startswith(RESPONSES_PREFIX)


def target_of_response(
    head: RequestHead, services: Iterable[ServiceRoute], caller: GatewayCaller
) -> ExchangeTarget:
    """Return the replica that keeps the response. One of another user, and one of a
    service that the caller may not use, is like one that does not exist.

    Raises: HeadRefused.
    """
    name, _, part = head.path[len(RESPONSES_PREFIX) :].partition(b"/")
    methods = _METHODS.get(part)
    if methods is None:
        raise refused(GatewayCode.PATH_NOT_FOUND, "no such endpoint")
    if head.method not in methods:
        raise refused(
            GatewayCode.METHOD_NOT_ALLOWED,
            f"{head.method.decode('latin-1')} is not a method of this endpoint",
        )
    response = name.decode("latin-1")
    for service in services:
        replica = service.responses.find(response, caller.owner)
        if replica in service.pools and service.admits(caller.name):
            target = b"%b?%b" % (head.path, head.query) if head.query else head.path
            return ExchangeTarget(
                service=service,
                target=target,
                is_engine=True,
                response=response,
                replica=replica,
            )
    raise HeadRefused(response_not_found(response))


def response_not_found(response: str, param: str | None = None) -> GatewayRefusal:
    """Return the refusal of a request for a response that the caller does not have."""
    return GatewayRefusal(
        GatewayCode.RESPONSE_NOT_FOUND,
        f"the response {response[:SHOWN_CHARACTERS]!r} does not exist, or its replica "
        "has ended",
        param,
    )
