"""Targets of requests to HTTP services: by the path, by the host, or by the model of a
WebSocket."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final
from urllib.parse import parse_qs, quote_plus

from corral.gateway.framing.request_head import RequestHead
from corral.gateway.openai_errors import GatewayCode, HeadRefused, refused
from corral.gateway.routing.service_route import ServiceRoute

SERVICES_PATH: Final = b"/services/"
REALTIME_PATH: Final = b"/v1/realtime"
# a tunnel of HTTP/2 would carry requests that the gateway cannot see
_NO_TUNNEL: Final = frozenset({b"h2c", b"h2"})
# TRACE would show the client the key of the replica
_REFUSED_METHODS: Final = frozenset({b"TRACE", b"CONNECT"})
FindModel = Callable[[str], tuple[ServiceRoute, int | None]]


@dataclass(frozen=True, slots=True, kw_only=True)
class ExchangeTarget:
    """Service of a request whose bytes pass as they are.

    Args:
        target: Path and query at the replica.
        prefix: Path under which the client reaches the service; empty by host.
        revision: Revision that the client has named; None: any.
        is_engine: Whether an engine answers, which needs the gateway's key.
        response: Stored response that the request is for; "": none.
        replica: The only replica that can answer; "": any can.
    """

    service: ServiceRoute
    target: bytes
    prefix: bytes = b""
    revision: int | None = None
    is_engine: bool = False
    response: str = ""
    replica: str = ""


def may_be_exchange(head: RequestHead) -> bool:
    """Return whether the request may be for an HTTP service, by its path and host."""
    return (
        head.path.startswith(SERVICES_PATH)
        or head.path == REALTIME_PATH
        or bool(service_of_host(head.host))
    )


def find_target(
    head: RequestHead, services: Mapping[str, ServiceRoute], find_model: FindModel
) -> ExchangeTarget | None:
    """Return the target of a request; None if no such service exists.

    Args:
        find_model: Finds the service of a model, and the revision in the model's name.

    Raises: HeadRefused.
    """
    if head.path.startswith(SERVICES_PATH):
        return _target_of_path(head, services)
    if head.path == REALTIME_PATH:
        return _target_of_model(head, find_model)
    name = service_of_host(head.host)
    service = services.get(name)
    if service is None or not head.path.startswith(b"/"):
        return None
    return ExchangeTarget(service=service, target=_with_query(head.path, head.query))


def _target_of_path(
    head: RequestHead, services: Mapping[str, ServiceRoute]
) -> ExchangeTarget | None:
    name, _, rest = head.path[len(SERVICES_PATH) :].partition(b"/")
    service = services.get(name.decode("latin-1"))
    if service is None:
        return None
    return ExchangeTarget(
        service=service,
        target=_with_query(b"/" + rest, head.query),
        prefix=SERVICES_PATH + name,
    )


def _target_of_model(head: RequestHead, find_model: FindModel) -> ExchangeTarget:
    if not is_upgrade(head):
        raise refused(
            GatewayCode.BAD_REQUEST, "this endpoint is a WebSocket: send an Upgrade"
        )
    models = parse_qs(head.query.decode("latin-1"), encoding="utf-8").get("model", [])
    if len(models) != 1:
        raise refused(
            GatewayCode.BAD_REQUEST,
            "the query needs one model: /v1/realtime?model=NAME",
            param="model",
        )
    service, revision = find_model(models[0])
    query = head.query
    if revision is not None:
        plain = quote_plus(models[0].rpartition("@")[0]).encode()
        parts = [
            b"model=" + plain if part.startswith(b"model=") else part
            for part in query.split(b"&")
        ]
        query = b"&".join(parts)
    return ExchangeTarget(
        service=service,
        target=_with_query(head.path, query),
        revision=revision,
        is_engine=True,
    )


def service_not_found(head: RequestHead) -> HeadRefused:
    """Return the refusal of a request to a service that the caller cannot use."""
    if not head.path.startswith(SERVICES_PATH):
        return refused(GatewayCode.PATH_NOT_FOUND, "no such endpoint")
    name = head.path[len(SERVICES_PATH) :].partition(b"/")[0][:200].decode("latin-1")
    return refused(
        GatewayCode.PATH_NOT_FOUND,
        f"the service {name!r} does not exist, or you may not use it",
    )


def check_exchange(head: RequestHead, target: ExchangeTarget, length: int) -> None:
    """Refuse what no service gets. Raises: HeadRefused."""
    if head.method in _REFUSED_METHODS:
        raise refused(
            GatewayCode.METHOD_NOT_ALLOWED,
            f"{head.method.decode('latin-1')} is not passed on to services",
        )
    limit = target.service.entry.body_bytes
    if length > limit:
        raise refused(GatewayCode.BODY_TOO_LARGE, f"a body has at most {limit} bytes")


def is_upgrade(head: RequestHead) -> bool:
    """Return whether the request may begin a tunnel."""
    return bool(head.upgrade) and not _NO_TUNNEL & set(head.upgrade.split(b","))


def service_of_host(host: bytes) -> str:
    """Return the first name of a host such as `chat.example.org`; "" of an address or a
    host without a dot."""
    name = host.rpartition(b":")[0] if b":" in host else host
    label, dot, _ = name.partition(b".")
    if not dot or name.replace(b".", b"").isdigit():
        return ""
    return label.decode("latin-1").lower()


def _with_query(path: bytes, query: bytes) -> bytes:
    return b"%b?%b" % (path, query) if query else path
