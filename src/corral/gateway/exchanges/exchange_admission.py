"""Admission of requests whose bodies pass as they come: who may send them, and where."""

from collections.abc import Callable, Mapping
from typing import Protocol

from corral.gateway.access.budgets import GatewayBudgets
from corral.gateway.access.callers import GatewayCaller
from corral.gateway.exchanges.service_exchange import ServiceExchange
from corral.gateway.framing.client_connection import ClientConnection
from corral.gateway.framing.request_head import RequestHead
from corral.gateway.openai_errors import GatewayRefusal, HeadRefused
from corral.gateway.requests.routed_request import BYTES_PER_TOKEN, ActiveRequest
from corral.gateway.routing.exchange_targets import (
    ExchangeTarget,
    check_exchange,
    find_target,
    service_not_found,
)
from corral.gateway.routing.service_route import ServiceRoute
from corral.gateway.routing.stored_responses import (
    is_of_response,
    target_of_response,
)


class ExchangeHost(Protocol):
    """Parts of the gateway process that admit a request."""

    now: Callable[[], float]
    active: set[ActiveRequest]
    is_draining: bool
    budgets: GatewayBudgets
    services: dict[str, ServiceRoute]


def open_exchange(
    host: ExchangeHost,
    client: ClientConnection,
    caller: GatewayCaller,
    head: RequestHead,
    length: int,
    request_id: bytes,
    find_model: Callable[[str], tuple[ServiceRoute, int | None]],
) -> ServiceExchange:
    """Admit a request to an HTTP service, or for a response that a replica keeps.
    Raises: HeadRefused."""
    services: Mapping[str, ServiceRoute] = host.services
    if is_of_response(head):
        stored = target_of_response(head, services.values(), caller)
        return admit_exchange(host, client, caller, head, stored, length, request_id)
    target = find_target(head, services, find_model)
    if target is None or not target.service.admits(caller.name):
        raise service_not_found(head)
    return admit_exchange(host, client, caller, head, target, length, request_id)


def admit_exchange(
    host: ExchangeHost,
    client: ClientConnection,
    caller: GatewayCaller,
    head: RequestHead,
    target: ExchangeTarget,
    length: int,
    request_id: bytes,
) -> ServiceExchange:
    """Count a request against the limits and budgets. Raises: HeadRefused."""
    check_exchange(head, target, length)
    tokens = max(0, length) // BYTES_PER_TOKEN
    refusal = caller.admit(host.now(), tokens)
    if refusal is not None:
        raise HeadRefused(refusal)
    names = caller.with_key_budget(target.service.entry.budgets)
    charge = host.budgets.admit(caller.entry.budget, names, tokens)
    if isinstance(charge, GatewayRefusal):
        caller.finish(0, tokens)
        raise HeadRefused(charge)
    exchange = ServiceExchange(
        host, client, target, caller, head, length, request_id, tokens
    )
    exchange.charge = charge
    return exchange
