"""One service as the gateway holds it: its replicas, their health, and its queue."""

from typing import Final, Protocol

from corral.gateway.access.callers import GatewayCaller
from corral.gateway.counting.gateway_metrics import ServiceMetrics
from corral.gateway.framing.answer_framing import AnswerHeads
from corral.gateway.openai_errors import GatewayCode, GatewayRefusal
from corral.gateway.replicas.adapter_loads import AdapterLoads
from corral.gateway.replicas.service_replicas import MOST_RETRY_SECONDS, free_states
from corral.gateway.replicas.watched_replicas import WatchedReplicas
from corral.gateway.routing.fallback import FallbackPool
from corral.gateway.routing.response_places import ResponsePlaces, SharedPlaces
from corral.route.fair_queue import FairQueue, PriorityClass, QueuedItem
from corral.route.rate_renewal import RateRenewal
from corral.wire.gateway_routes import FallbackEntry, ServiceEntry

QUEUE_BYTES: Final = 64 * 1024 * 1024
LEAST_RETRY_SECONDS: Final = 1.0
REQUEST_QUARANTINED: Final = GatewayRefusal(
    GatewayCode.QUARANTINED, "replicas died of this request; it is refused for an hour"
)
# revision and adapter that requests name
QueueKey = tuple[int | None, str | None]
PRIORITIES: Final = {level.name.lower(): level for level in PriorityClass}


class WaitingRequest(Protocol):
    """A request in the queue of a service."""

    caller: GatewayCaller
    revision: int | None

    def send_or_wait(self, now: float) -> None:
        """Send the request, or let it wait until a replica can take it."""

    def refuse_late(self) -> None:
        """Refuse the request, for which no replica has become free."""


class ServiceRoute(WatchedReplicas):
    """One service: its replicas, and the requests that wait for them.

    Attributes:
        queue: Requests that wait for any replica.
        pinned: Requests that wait for a replica of one revision or with one adapter.
        adapters: Adapters, as the replicas have them.
        fallback: Provider for requests that no replica can take; None without one.
        renewal: Idle spans of the replicas that take requests.
    """

    __slots__ = (
        "_mean_seconds",
        "adapters",
        "allow",
        "fallback",
        "pinned",
        "queue",
        "renewal",
        "responses",
    )

    def __init__(
        self,
        entry: ServiceEntry,
        metrics: ServiceMetrics,
        heads: AnswerHeads,
        shared: SharedPlaces | None = None,
    ) -> None:
        super().__init__(entry, metrics, heads)
        self.queue: FairQueue[WaitingRequest] = FairQueue()
        self.pinned: dict[QueueKey, FairQueue[WaitingRequest]] = {}
        self.adapters = AdapterLoads(metrics)
        self.fallback: FallbackPool | None = None
        self.responses = ResponsePlaces(entry.name, shared)
        self.renewal = RateRenewal()
        self._mean_seconds = LEAST_RETRY_SECONDS
        self.update(entry)

    def update(self, entry: ServiceEntry) -> None:
        """Take the replicas of a new state; unchanged ones keep what was learned."""
        self.entry = entry
        self.allow = None if entry.allow is None else frozenset(entry.allow)
        for queue in (self.queue, *self.pinned.values()):
            queue.most_items = entry.queue_requests
            queue.most_bytes = QUEUE_BYTES
        self._take_replicas()
        self.adapters.update(entry, self.pools)
        self._take_fallback(entry.fallback)

    def _take_fallback(self, entry: FallbackEntry | None) -> None:
        previous = self.fallback
        if previous is not None and previous.fallback == entry:
            return
        if previous is not None:
            previous.unlist()
        self.fallback = (
            None
            if entry is None
            else FallbackPool(entry, self._heads, self.metrics.fallback)
        )

    def has_ready_replica(self, now: float) -> bool:
        """Return whether any replica takes requests, now or when it is less busy."""
        return any(state.ejected_until <= now for state in self.states)

    def admits(self, caller: str) -> bool:
        return self.allow is None or caller in self.allow

    def enqueue(
        self,
        request: WaitingRequest,
        tokens: int,
        size: int,
        now: float,
        until: float,
        adapter: str | None = None,
    ) -> QueuedItem[WaitingRequest] | None:
        """Let a request wait; None if the queue is full or its deadline has passed. In
        a full queue, the newest request of the caller with the most waiting ones is
        refused in its place."""
        caller = request.caller
        priority = PRIORITIES[caller.priority]
        queue = self.queue_of(request.revision, adapter)
        queued = queue.push(caller.name, priority, tokens, request, now, until, size)
        if queued is None and until > now:
            displaced = queue.displace(caller.name, priority)
            if displaced is not None:
                displaced.refuse_late()
                queued = queue.push(
                    caller.name, priority, tokens, request, now, until, size
                )
        return queued

    def queue_of(
        self, revision: int | None, adapter: str | None = None
    ) -> FairQueue[WaitingRequest]:
        """Return the queue of requests for a revision and an adapter; None: for any.
        They wait apart, so that requests for a busy revision do not stop the others."""
        if revision is None and adapter is None:
            return self.queue
        key = (revision, adapter)
        queue = self.pinned.get(key)
        if queue is None:
            queue = FairQueue(self.entry.queue_requests, QUEUE_BYTES)
            self.pinned[key] = queue
        return queue

    @property
    def waiting(self) -> int:
        """Number of requests that wait."""
        waiting = len(self.queue)
        if self.pinned:
            waiting += sum(len(queue) for queue in self.pinned.values())
        return waiting

    def send_waiting(self, now: float) -> None:
        """Send waiting requests as far as replicas are free."""
        if len(self.queue):
            self._send_from(self.queue, None, now)
        if self.pinned:
            for (revision, _), queue in self.pinned.items():
                self._send_from(queue, revision, now)

    def _send_from(
        self, queue: FairQueue[WaitingRequest], revision: int | None, now: float
    ) -> None:
        states = self.candidates(revision, is_canary=False)[0]
        while (waiting := len(queue)) and any(free_states(states, now)):
            request = queue.pop(now)
            if request is None:
                return
            request.send_or_wait(now)
            if len(queue) >= waiting:
                return  # no free replica has room for its adapter

    def busy_refusal(self) -> GatewayRefusal:
        """Return the refusal of a request for which no replica has become free.

        A retry makes sense when the requests that wait now have been served, at the
        mean time of all so far.
        """
        served = max(1, sum(state.in_flight for state in self.states))
        seconds = self._mean_seconds * (1 + self.waiting / served)
        return GatewayRefusal(
            GatewayCode.OVERLOADED,
            "every replica of this model is busy or away",
            retry_after=min(MOST_RETRY_SECONDS, max(LEAST_RETRY_SECONDS, seconds)),
        )

    def measure(self, now: float) -> None:
        """Bring the gauges up to date, and renew the rates of a replica that gets no
        requests."""
        self.metrics.queued = self.waiting
        self.metrics.batch_queued = sum(
            queue.waiting_of(PriorityClass.BATCH)
            for queue in (self.queue, *self.pinned.values())
        )
        self.metrics.replicas = sum(state.ejected_until <= now for state in self.states)
        self._leaving = [pool for pool in self._leaving if pool.state.in_flight]
        answers: dict[str, int] = {}
        seconds = 0.0
        for pool in (*self._leaving, *self.pools.values()):
            pool.counters.in_flight = pool.state.in_flight
            pool.counters.pending_tokens = pool.state.pending_tokens
            answers[pool.state.name] = sum(pool.counters.request_seconds.counts)
            seconds += pool.counters.request_seconds.sum
        if ended := sum(answers.values()):
            self._mean_seconds = seconds / ended
        self.renewal.renew(self.states, answers, now)

    @property
    def is_over(self) -> bool:
        """Whether nothing is under way; a withdrawn service can be forgotten then."""
        pools = (*self.pools.values(), *self._leaving)
        return not self.waiting and not any(pool.state.in_flight for pool in pools)

    def sweep(self, now: float) -> None:
        """Refuse requests that waited too long, probe ejected replicas, and send what
        waits."""
        for queue in (self.queue, *self.pinned.values()):
            for request in queue.expire(now):
                request.refuse_late()
        self._sweep_probes(now)
        self.adapters.sweep(self.pools, now)
        if self.fallback is not None:
            self.fallback.close_idle(now)
        self.send_waiting(now)
