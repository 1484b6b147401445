"""State of one gateway process: routes, callers, requests under way, and its sweep."""

import asyncio
import logging
import secrets
from collections.abc import Callable
from typing import Final
from urllib.parse import unquote_to_bytes

from corral.gateway.access.budgets import BudgetCharge, GatewayBudgets
from corral.gateway.access.callers import CallerDirectory, GatewayCaller
from corral.gateway.counting.counters import (
    COUNTERS_PATH,
    is_counters_key,
    render_counters,
)
from corral.gateway.counting.gateway_metrics import (
    NO_REPLICA,
    NO_SERVICE,
    GatewayMetrics,
)
from corral.gateway.counting.metrics_text import metrics_text
from corral.gateway.exchanges.exchange_admission import open_exchange
from corral.gateway.exchanges.large_form import WHOLE_FORM_BYTES, LargeForm
from corral.gateway.exchanges.service_exchange import ServiceExchange
from corral.gateway.framing.answer_framing import AnswerHeads
from corral.gateway.framing.client_connection import (
    KEEP_ALIVE_SECONDS,
    ClientConnection,
)
from corral.gateway.framing.request_body import read_body
from corral.gateway.framing.request_form import read_form
from corral.gateway.framing.request_head import RequestHead, RequestHeads
from corral.gateway.head.head_connection import HeadAddress
from corral.gateway.head.head_forward import HeadForward, is_forwarded, open_forward
from corral.gateway.openai_errors import (
    GatewayCode,
    GatewayRefusal,
    HeadRefused,
    refused,
    render,
    render_refusal,
)
from corral.gateway.replicas.replica_pool import ReplicaPool
from corral.gateway.requests.endpoints import (
    FORMS,
    MODELS_PATH,
    ONE_MODEL,
    RELAYED,
    is_local,
)
from corral.gateway.requests.relay import RelayedRequest
from corral.gateway.requests.routed_request import (
    BYTES_PER_TOKEN,
    ActiveRequest,
    RoutedRequest,
)
from corral.gateway.routing.exchange_targets import may_be_exchange
from corral.gateway.routing.model_list import render_model, render_models
from corral.gateway.routing.model_names import (
    ModelNames,
    ModelTarget,
    body_for_replicas,
)
from corral.gateway.routing.response_places import SharedPlaces
from corral.gateway.routing.service_route import ServiceRoute
from corral.gateway.routing.stored_responses import is_of_response
from corral.wire.gateway_routes import RoutesFile

log = logging.getLogger(__name__)

SWEEP_SECONDS: Final = 0.05
SLOW_SWEEP_SECONDS: Final = 1.0
LEAST_BODY_BYTES: Final = 1024 * 1024
BODIES_BYTES: Final = 512 * 1024 * 1024
DRAINING_IDLE_SECONDS: Final = 0.5
HANDED_OVER_IDLE_SECONDS: Final = 5.0


class GatewayCore:
    """State of one process.

    Args:
        loop: Loop whose clock is used.
        share: Part of each caller's limits that this process grants.
        metrics: Counters of this process; None: those of a gateway of one process.
        counters_key: Key with which the counters are read; None: they are not served.
        head_address: Head that answers requests for files and batches; None: none.
        shared_places: Places of responses, for all processes; None: this is the only one.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        *,
        share: float = 1.0,
        metrics: GatewayMetrics | None = None,
        counters_key: bytes | None = None,
        head_address: HeadAddress | None = None,
        shared_places: SharedPlaces | None = None,
    ) -> None:
        self.now: Callable[[], float] = loop.time
        self.heads = RequestHeads()
        self.answer_heads = AnswerHeads()
        self.callers = CallerDirectory(share)
        self.metrics = metrics or GatewayMetrics()
        counters = self.metrics.own
        self.budgets = GatewayBudgets(counters.process, counters.budgets, share)
        self._counters_key = counters_key
        self.services: dict[str, ServiceRoute] = {}
        self.version = -1
        self.active: set[ActiveRequest] = set()
        self.forwards: set[HeadForward] = set()
        self._head_address = head_address
        self._places = shared_places
        self.reading: set[ClientConnection] = set()
        self.connections: set[ClientConnection] = set()
        self.is_draining = False
        self.idle_seconds = KEEP_ALIVE_SECONDS
        self.body_limit = 0
        self._models = ModelNames()
        self._withdrawn: list[ServiceRoute] = []
        self._loop = loop
        self._nonce = secrets.token_hex(6).encode()
        self._requests = 0
        self._bodies_bytes = 0
        self._sweep_timer: asyncio.TimerHandle | None = None
        self._next_slow_sweep = 0.0

    # routes

    def update_routes(self, routes: RoutesFile) -> None:
        """Take a new state of the routes. Requests under way keep theirs."""
        self.callers.update(routes.callers, self.now(), is_open=routes.open)
        self.budgets.update(routes.budgets)
        previous = self.services
        self.services = {}
        for entry in routes.services:
            service = previous.get(entry.name)
            if service is None:
                metrics = self.metrics.of(entry.name)
                service = ServiceRoute(entry, metrics, self.answer_heads, self._places)
                service.in_flight_at = self._in_flight_at
            else:
                service.update(entry)
            self.services[entry.name] = service
        for name, service in previous.items():
            if name not in self.services:
                service.withdraw()
                self._withdrawn.append(service)
        self._models.update(self.services.values())
        self.body_limit = max(
            (entry.body_bytes for entry in routes.services), default=LEAST_BODY_BYTES
        )
        self.version = routes.version
        self._end_revoked()
        now = self.now()
        for service in self.services.values():
            service.send_waiting(now)

    def _end_revoked(self) -> None:
        """End the requests of callers who may no longer send them."""
        for request in list(self.active):
            caller = request.caller
            current = self.services.get(request.service.name, request.service)
            if not self.callers.holds(caller) or not current.admits(caller.name):
                request.revoke()

    # requests

    def check_head(self, head: RequestHead) -> GatewayCaller:
        """Return the caller of a request to a replica, before its body is read.

        Raises: HeadRefused.
        """
        if head.path in RELAYED:
            if head.method != b"POST":
                raise refused(GatewayCode.METHOD_NOT_ALLOWED, "use POST here")
        elif is_local(head.path):
            if head.method != b"GET":
                raise refused(GatewayCode.METHOD_NOT_ALLOWED, "use GET here")
            if head.path == COUNTERS_PATH:
                self._check_counters_key(head)
                return self.callers.anyone
        else:
            raise refused(GatewayCode.PATH_NOT_FOUND, "no such endpoint")
        if head.path == b"/healthz":
            return self.callers.anyone
        return self._caller_of(head)

    def _caller_of(self, head: RequestHead) -> GatewayCaller:
        caller = self.callers.find(head.key)
        if caller is None:
            raise refused(
                GatewayCode.INVALID_API_KEY,
                "an API key is needed: Authorization: Bearer KEY"
                if head.key is None
                else "this API key is not valid",
            )
        return caller

    def _check_counters_key(self, head: RequestHead) -> None:
        if self._counters_key is None:
            raise refused(GatewayCode.PATH_NOT_FOUND, "no such endpoint")
        if not is_counters_key(head.key, self._counters_key):
            raise refused(
                GatewayCode.INVALID_API_KEY,
                "the counters need the key of --counters-key-file",
            )

    def serve(self, client: ClientConnection, head: RequestHead, body: bytes) -> None:
        """Answer one whole request, at once or through a replica."""
        request_id = self.request_id_of(head)
        try:
            if head.path not in RELAYED and not is_local(head.path):
                exchange = self._open_stream(client, head, len(body), request_id)
                client.request = exchange
                exchange.begin()
                if body:
                    exchange.body_part(body, is_done=True)
                return
            caller = self.check_head(head)
            if is_local(head.path):
                self._answer(client, head, *self._local_answer(head, caller))
                return
            is_form = head.path in FORMS
            fields = read_form(head.content_type, body) if is_form else read_body(body)
            model = fields.model or ""
            target = self.find_model(model, caller, len(body))
            service = target.service
            if not target.is_plain:
                body = body_for_replicas(head, body, target, is_form=is_form)
        except HeadRefused as error:
            self._refuse(client, head, error.refusal, request_id)
            return
        now = self.now()
        tokens = len(body) // BYTES_PER_TOKEN
        if caller.limits is not None:
            refusal = caller.admit(now, tokens)
            if refusal is not None:
                self._refuse(client, head, refusal, request_id, service)
                return
        charge: BudgetCharge | None = None
        names = caller.with_key_budget(service.entry.budgets)
        if caller.entry.budget is not None or names:
            output = round(service.expected_output.tokens(fields.output_limit))
            charged = self.budgets.admit(caller.entry.budget, names, tokens + output)
            if isinstance(charged, GatewayRefusal):
                caller.finish(0, tokens)
                self._refuse(client, head, charged, request_id, service)
                return
            charge = charged
        request = RelayedRequest(
            self,
            client,
            service,
            caller,
            head,
            body,
            request_id,
            tokens,
            target.revision,
        )
        request.adapter = target.adapter
        request.charge = charge
        client.request = request
        request.begin(fields, now)

    def receive(
        self, client: ClientConnection, head: RequestHead, length: int
    ) -> ServiceExchange | HeadForward | LargeForm | None:
        """Return the request that takes its body as it comes; None if the body is to
        be read first. Raises: HeadRefused."""
        if head.path in FORMS and not 0 <= length <= WHOLE_FORM_BYTES:
            caller = self.check_head(head)
            request_id = self.request_id_of(head)
            return LargeForm(self, client, caller, head, length, request_id)
        if head.path in RELAYED or is_local(head.path):
            return None
        return self._open_stream(client, head, length, self.request_id_of(head))

    def _open_stream(
        self,
        client: ClientConnection,
        head: RequestHead,
        length: int,
        request_id: bytes,
    ) -> ServiceExchange | HeadForward:
        """Admit a request to the head, or to an HTTP service. Raises: HeadRefused."""
        if self._head_address is None or not is_forwarded(head.path):
            return self._open_exchange(client, head, length, request_id)
        self._caller_of(head)
        address = self._head_address
        return open_forward(self, client, address, head, length, request_id)

    def request_id_of(self, head: RequestHead) -> bytes:
        self._requests += 1
        return head.request_id or b"%b-%x" % (self._nonce, self._requests)

    def _open_exchange(
        self,
        client: ClientConnection,
        head: RequestHead,
        length: int,
        request_id: bytes,
    ) -> ServiceExchange:
        """Admit a request to an HTTP service. Raises: HeadRefused.

        The key is checked first: a caller without one sees no difference between a
        service that exists and one that does not.
        """
        if not (may_be_exchange(head) or is_of_response(head)):
            raise refused(GatewayCode.PATH_NOT_FOUND, "no such endpoint")
        caller = self._caller_of(head)
        return open_exchange(
            self,
            client,
            caller,
            head,
            length,
            request_id,
            lambda model: self._service_of(model, caller),
        )

    def _service_of(
        self, model: str, caller: GatewayCaller
    ) -> tuple[ServiceRoute, int | None]:
        """Return the service and the revision of a model's name. Raises: HeadRefused."""
        target = self.find_model(model, caller, 0)
        return target.service, target.revision

    def find_model(self, model: str, caller: GatewayCaller, size: int) -> ModelTarget:
        """Return where the name of a model leads. Raises: HeadRefused.

        Args:
            size: Bytes of the request's body.
        """
        target = self._models.find(model, caller.name)
        limit = target.service.entry.body_bytes
        if size > limit:
            raise refused(
                GatewayCode.BODY_TOO_LARGE, f"a body has at most {limit} bytes"
            )
        return target

    def _local_answer(
        self, head: RequestHead, caller: GatewayCaller
    ) -> tuple[bytes, bytes]:
        """Return the body of an answer and its content type."""
        if head.path == b"/healthz":
            return b"ok\n", b"text/plain"
        now = self.now()
        if head.path == COUNTERS_PATH:
            self.publish_metrics()
            return render_counters(self.metrics.processes(now)), b"application/json"
        visible = [
            service for service in self.services.values() if service.admits(caller.name)
        ]
        if head.path == MODELS_PATH:
            return render_models(visible), b"application/json"
        if head.path.startswith(ONE_MODEL):
            name = unquote_to_bytes(head.path.removeprefix(ONE_MODEL))
            model = name.decode(errors="replace")
            target = self.find_model(model, caller, 0)
            return render_model(model, target), b"application/json"
        for service in visible:
            service.measure(now)
        names = [NO_SERVICE, *(service.name for service in visible)]
        sums = self.metrics.sums(now)
        text = metrics_text({name: sums[name] for name in names if name in sums})
        return text.encode(), b"text/plain; version=0.0.4; charset=utf-8"

    def _answer(
        self,
        client: ClientConnection,
        head: RequestHead,
        body: bytes,
        content_type: bytes,
    ) -> None:
        self.count(200)
        closes = self._closes(head)
        client.write(render(200, body, closes=closes, content_type=content_type))
        if closes:
            client.close()

    def _refuse(
        self,
        client: ClientConnection,
        head: RequestHead,
        refusal: GatewayRefusal,
        request_id: bytes,
        service: ServiceRoute | None = None,
    ) -> None:
        self.count(refusal.status, NO_SERVICE if service is None else service.name)
        closes = self._closes(head)
        client.write(render_refusal(refusal, closes=closes, request_id=request_id))
        if closes:
            client.close()

    def _closes(self, head: RequestHead) -> bool:
        return not head.keeps_alive or head.is_http10 or self.is_draining

    def count(self, status: int, service: str = NO_SERVICE) -> None:
        """Count an answer that the gateway has made itself."""
        requests = self.metrics.of(service).unrouted.requests
        requests[status] = requests.get(status, 0) + 1

    def reserve_bytes(self, size: int) -> None:
        """Reserve memory for a body that is being read. Raises: HeadRefused."""
        if self._bodies_bytes + size > BODIES_BYTES:
            refusal = GatewayRefusal(
                GatewayCode.OVERLOADED,
                "the gateway has no memory for more bodies now",
                retry_after=1.0,
            )
            raise HeadRefused(refusal)
        self._bodies_bytes += size

    def release_bytes(self, size: int) -> None:
        self._bodies_bytes -= size

    # deadlines

    def _in_flight_at(self, pool: ReplicaPool) -> list[int]:
        return [
            request.fingerprint
            for request in self.active
            if isinstance(request, RoutedRequest) and request.is_at(pool)
        ]

    def start_sweep(self) -> None:
        """Begin to look at deadlines each SWEEP_SECONDS."""
        self._sweep_timer = self._loop.call_later(SWEEP_SECONDS, self._sweep)

    def stop_sweep(self) -> None:
        if self._sweep_timer is not None:
            self._sweep_timer.cancel()

    def _sweep(self) -> None:
        self._sweep_timer = self._loop.call_later(SWEEP_SECONDS, self._sweep)
        now = self.now()
        for request in [request for request in self.active if request.deadline < now]:
            request.expire(now)
        for client in [client for client in self.reading if client.deadline < now]:
            client.expire()
        for service in (*self.services.values(), *self._withdrawn):
            service.sweep(now)
        if now >= self._next_slow_sweep:
            self._next_slow_sweep = now + SLOW_SWEEP_SECONDS
            self._sweep_idle(now)
            self.publish_metrics()

    def publish_metrics(self) -> None:
        """Bring the gauges up to date, and publish the counters to other processes."""
        now = self.now()
        self._withdrawn = [route for route in self._withdrawn if not route.is_over]
        in_use: dict[str, set[str]] = {}
        for service in (*self._withdrawn, *self.services.values()):
            service.measure(now)
            in_use.setdefault(service.name, set()).update(service.replicas_in_use())
        for name, metrics in self.metrics.services.items():
            for replica in [*metrics.by_replica]:
                if replica != NO_REPLICA and replica not in in_use.get(name, ()):
                    metrics.close_replica(replica)
        self.metrics.note_callers(self.callers.limits)
        self.metrics.note_budgets(self.budgets.counts)
        self.metrics.write(now)

    def _sweep_idle(self, now: float) -> None:
        """Close connections that were idle for too long."""
        for service in self.services.values():
            for pool in service.pools.values():
                pool.close_idle(now)
        for client in list(self.connections):
            if not client.is_idle or client.is_lingering:
                continue
            if not client.deadline:
                client.deadline = now + self.idle_seconds
            elif client.deadline < now:
                client.close()

    def end_tunnels(self) -> None:
        """Close the tunnels, so that their clients connect again elsewhere."""
        for request in list(self.active):
            if isinstance(request, ServiceExchange):
                request.end_tunnel()

    def drain(self, idle_seconds: float) -> None:
        """Answer what is under way, and close connections after it.

        Args:
            idle_seconds: Seconds after which connections without a request are closed.
        """
        self.is_draining = True
        self.idle_seconds = idle_seconds
        for client in self.connections:
            if client.is_idle:
                client.deadline = self.now() + idle_seconds
        self._next_slow_sweep = self.now()
