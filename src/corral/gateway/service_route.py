"""One service as the gateway holds it: its replicas, their health, and its queue."""

import logging
from collections.abc import Callable, Collection, Iterator, Sequence
from math import inf
from typing import Final, Protocol

import msgspec

from corral.gateway.answer_framing import AnswerHeads
from corral.gateway.callers import GatewayCaller
from corral.gateway.gateway_metrics import ServiceMetrics
from corral.gateway.openai_errors import GatewayCode, GatewayRefusal
from corral.gateway.replica_connection import LossKind
from corral.gateway.replica_pool import ReplicaPool
from corral.gateway.replica_probe import LivenessCheck, ReplicaProbe
from corral.route.choice import ReplicaState
from corral.route.concurrency_limit import ConcurrencyLimit
from corral.route.expected_output import ExpectedOutput
from corral.route.fair_queue import FairQueue, PriorityClass, QueuedItem
from corral.route.first_token_deadline import FirstTokenDeadline
from corral.route.outlier_ejection import OutlierEjection, ReplicaFailure
from corral.route.quarantine import Quarantine
from corral.route.retry_budget import RetryBudget
from corral.wire.gateway_routes import ReplicaEntry, ServiceEntry

log = logging.getLogger(__name__)

QUEUE_BYTES: Final = 64 * 1024 * 1024
ROUNDING: Final = 1e-9
LEAST_RETRY_SECONDS: Final = 1.0
MOST_RETRY_SECONDS: Final = 60.0
# a wait below this is no sign of overload, whatever the least one was
LIMIT_SLACK_SECONDS: Final = 0.25
USUAL_OUTPUT_LIMIT: Final = 4096
SLOWEST_TOKEN_SECONDS: Final = 0.1
REQUEST_QUARANTINED: Final = GatewayRefusal(
    GatewayCode.QUARANTINED, "replicas died of this request; it is refused for an hour"
)
PRIORITIES: Final = {level.name.lower(): level for level in PriorityClass}
FAILURES: Final = {
    LossKind.REFUSED: ReplicaFailure.REFUSED,
    LossKind.CLOSED: ReplicaFailure.DISCONNECTED,
    LossKind.BAD_ANSWER: ReplicaFailure.ERROR,
    LossKind.NO_FIRST_BYTE: ReplicaFailure.TIMEOUT,
    LossKind.UNAVAILABLE: ReplicaFailure.ERROR,
    # the port belongs to another server: no request must go there
    LossKind.WRONG_KEY: ReplicaFailure.REFUSED,
    LossKind.ENGINE_ERROR: ReplicaFailure.ERROR,
}


class WaitingRequest(Protocol):
    """A request in the queue of a service."""

    caller: GatewayCaller
    revision: int | None

    def send_or_wait(self, now: float) -> None:
        """Send the request, or let it wait until a replica can take it."""

    def refuse_late(self) -> None:
        """Refuse the request, for which no replica has become free."""


class ServiceRoute:
    """One service: what the routes file says, and what was learned of its replicas.

    Attributes:
        queue: Requests that wait for any replica.
        pinned: Requests that wait for a replica of one revision, by its number.
        has_canary: Whether a part of the requests goes to a canary.
    """

    __slots__ = (
        "_by_revision",
        "_canary_choices",
        "_canary_credit",
        "_has_suspects",
        "_heads",
        "_leaving",
        "_limits",
        "_mean_seconds",
        "_probes",
        "_quarantine",
        "_retries",
        "_tie",
        "allow",
        "ejection",
        "entry",
        "expected_output",
        "first_tokens",
        "has_canary",
        "metrics",
        "name",
        "pinned",
        "pools",
        "queue",
        "states",
        "usual_choices",
    )

    def __init__(
        self, entry: ServiceEntry, metrics: ServiceMetrics, heads: AnswerHeads
    ) -> None:
        self.name = entry.name
        self.metrics = metrics
        self.pools: dict[str, ReplicaPool] = {}
        self.states: list[ReplicaState] = []
        self._retries = RetryBudget()
        self.ejection = OutlierEjection()
        self.expected_output = ExpectedOutput()
        self.first_tokens = FirstTokenDeadline()
        self.queue: FairQueue[WaitingRequest] = FairQueue()
        self._heads = heads
        self._limits: dict[str, ConcurrencyLimit] = {}
        self._probes: dict[str, ReplicaProbe] = {}
        self._quarantine = Quarantine()
        self._has_suspects = False
        self._tie = 0
        self.pinned: dict[int, FairQueue[WaitingRequest]] = {}
        self._leaving: list[ReplicaPool] = []
        self._canary_credit = 0.0
        self._mean_seconds = LEAST_RETRY_SECONDS
        self.update(entry)

    def update(self, entry: ServiceEntry) -> None:
        """Take the replicas of a new state; unchanged ones keep what was learned."""
        self.entry = entry
        self.allow = None if entry.allow is None else frozenset(entry.allow)
        for queue in (self.queue, *self.pinned.values()):
            queue.most_items = entry.queue_requests
            queue.most_bytes = QUEUE_BYTES
        previous = self.pools
        self.pools = {}
        changed: list[str] = []
        for replica in entry.replicas:
            pool = previous.get(replica.name)
            if pool is None or not _is_same_replica(pool.entry, replica):
                pool = self._add_replica(replica)
                changed.append(replica.name)
            pool.entry = replica
            self.pools[replica.name] = pool
        for name, pool in previous.items():
            if self.pools.get(name) is not pool:
                pool.unlist()
                self._leaving.append(pool)
        self._update_choices()
        self._limits = {name: self._limits[name] for name in self.pools}
        # a changed replica starts without the failures of its predecessor
        self.ejection.set_replicas([name for name in self.pools if name not in changed])
        self.ejection.set_replicas(list(self.pools))

    def _add_replica(self, replica: ReplicaEntry) -> ReplicaPool:
        limit = ConcurrencyLimit()
        self._limits[replica.name] = limit
        state = ReplicaState(replica.name, limit=limit.limit)
        counters = self.metrics.replica(replica.name, replica.revision)
        return ReplicaPool(replica, state, self._heads, counters)

    def _update_choices(self) -> None:
        """Group the replicas that take requests by what requests may reach them."""
        listed = [pool for pool in self.pools.values() if not pool.entry.draining]
        self.states = [pool.state for pool in listed]
        self._by_revision: dict[int, list[ReplicaState]] = {}
        for pool in listed:
            if pool.entry.revision is not None:
                states = self._by_revision.setdefault(pool.entry.revision, [])
                states.append(pool.state)
        canary = self.entry.canary
        trial = [] if canary is None else self._by_revision.get(canary.revision, [])
        usual = [state for state in self.states if state not in trial]
        self.usual_choices: Sequence[list[ReplicaState]] = (usual or self.states,)
        self._canary_choices = (trial, usual) if trial and usual else ()
        self.has_canary = bool(self._canary_choices)

    def withdraw(self) -> None:
        """Take no more requests: the service is no longer in the routes."""
        for pool in self.pools.values():
            pool.unlist()
        for probe in self._probes.values():
            probe.cancel()

    def admits(self, caller: str) -> bool:
        return self.allow is None or caller in self.allow

    def has_revision(self, revision: int) -> bool:
        """Return whether replicas of this revision take requests."""
        return revision in self._by_revision

    def is_canary_turn(self) -> bool:
        """Return whether the next request is one of the canary's share."""
        canary = self.entry.canary
        if canary is None:
            return False
        self._canary_credit += canary.share
        if self._canary_credit < 1.0 - ROUNDING:
            return False
        self._canary_credit -= 1.0
        return True

    def candidates(
        self, revision: int | None, *, is_canary: bool
    ) -> Sequence[list[ReplicaState]]:
        """Return the groups of replicas that may take a request, the preferred first.

        Args:
            revision: Revision that the client has named; None: any.
            is_canary: Whether the request is one of the canary's share. Without a
                replica of the canary, the others take it.
        """
        if revision is not None:
            return (self._by_revision.get(revision, []),)
        if is_canary and self._canary_choices:
            return self._canary_choices
        return self.usual_choices

    def has_other(
        self, revision: int | None, excluded: Collection[str], now: float
    ) -> bool:
        """Return whether another replica can take a request now."""
        states = self.candidates(revision, is_canary=False)[0]
        return any(state.name not in excluded for state in _free(states, now))

    def late_seconds(self, pool: ReplicaPool) -> float | None:
        """Return the seconds after which the first token of a request that was just
        sent is late; None if that is not known."""
        state = pool.state
        rates = state.rates
        return self.first_tokens.seconds(
            rates.overhead_seconds + rates.prefill_seconds(state.pending_tokens)
        )

    def hold_back(self, pool: ReplicaPool, seconds: float, now: float) -> None:
        """Send a replica nothing for the seconds that it has named."""
        until = now + min(seconds, MOST_RETRY_SECONDS)
        pool.state.ejected_until = max(pool.state.ejected_until, until)

    def next_tie(self) -> int:
        """Return the number that chooses among equal replicas."""
        self._tie += 1
        return self._tie

    def answer_seconds(self, output_limit: int | None, *, is_stream: bool) -> float:
        """Return the most seconds from sending a request to the first byte of its
        answer, and between two parts of it."""
        seconds = self.entry.deadline_seconds
        if not is_stream:  # it has no first byte before its last token
            seconds += (output_limit or USUAL_OUTPUT_LIMIT) * SLOWEST_TOKEN_SECONDS
        return seconds

    # waiting requests

    def enqueue(
        self,
        request: WaitingRequest,
        tokens: int,
        size: int,
        now: float,
        until: float,
    ) -> QueuedItem[WaitingRequest] | None:
        """Let a request wait; None if the queue is full or its deadline has passed. In
        a full queue, the newest request of the caller with the most waiting ones is
        refused in its place."""
        caller = request.caller
        priority = PRIORITIES[caller.priority]
        queue = self.queue_of(request.revision)
        queued = queue.push(caller.name, priority, tokens, request, now, until, size)
        if queued is None and until > now:
            displaced = queue.displace(caller.name, priority)
            if displaced is not None:
                displaced.refuse_late()
                queued = queue.push(
                    caller.name, priority, tokens, request, now, until, size
                )
        return queued

    def queue_of(self, revision: int | None) -> FairQueue[WaitingRequest]:
        """Return the queue of requests for a revision; None: for any. They wait apart,
        so that requests for a busy revision do not stop the others."""
        if revision is None:
            return self.queue
        queue = self.pinned.get(revision)
        if queue is None:
            queue = FairQueue(self.entry.queue_requests, QUEUE_BYTES)
            self.pinned[revision] = queue
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
            for revision, queue in self.pinned.items():
                self._send_from(queue, revision, now)

    def _send_from(
        self, queue: FairQueue[WaitingRequest], revision: int | None, now: float
    ) -> None:
        states = self.candidates(revision, is_canary=False)[0]
        while len(queue) and any(_free(states, now)):
            request = queue.pop(now)
            if request is None:
                return
            request.send_or_wait(now)

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

    # health of replicas

    def note_success(self, pool: ReplicaPool, fingerprint: int, now: float) -> None:
        """Count an answer of a replica."""
        self.ejection.note_success(pool.state.name, now)
        if self._has_suspects:
            self._quarantine.note_success(f"{fingerprint:x}")

    def note_failure(self, pool: ReplicaPool, kind: LossKind, now: float) -> None:
        """Count a lost answer, and eject the replica if it is due."""
        name = pool.state.name
        losses = pool.counters.losses
        losses[kind] = losses.get(kind, 0) + 1
        if kind is LossKind.BUSY or self.pools.get(name) is not pool:
            return  # no fault of the replica, or the routes have changed
        if self.ejection.note_failure(name, FAILURES[kind], now):
            pool.state.ejected_until = inf
            self.metrics.ejections += 1
            log.warning(
                "replica %s of %s gets no requests now: %s", name, self.name, kind
            )
        if kind is LossKind.REFUSED:
            self._note_deaths(pool, now)

    def note_request(self, now: float) -> None:
        """Count a request, which earns a part of a retry."""
        self._retries.note_request(now)

    def take_retry(self, kind: LossKind, now: float) -> bool:
        """Count a retry; False if the budget has none left.

        A dead replica must fail no request, however many it had: the budget is for
        faults that more requests make worse.
        """
        has_budget = self._retries.take(now)
        if not has_budget and kind not in (LossKind.REFUSED, LossKind.CLOSED):
            return False
        self.metrics.retries += 1
        return True

    def check_alive(self, pool: ReplicaPool, clock: Callable[[], float]) -> None:
        """Connect to a replica that has closed a connection: is it dead?"""
        if not pool.is_checked and self.pools.get(pool.state.name) is pool:
            pool.is_checked = True
            LivenessCheck(pool, lambda it: self._note_dead(it, clock()))

    def _note_dead(self, pool: ReplicaPool, now: float) -> None:
        self.note_failure(pool, LossKind.REFUSED, now)

    def _note_deaths(self, pool: ReplicaPool, now: float) -> None:
        losses = [f"{fingerprint:x}" for fingerprint in pool.take_losses(now)]
        if not losses:
            return
        self._has_suspects = True
        for fingerprint in self._quarantine.note_death(losses, pool.state.name, now):
            log.warning(
                "requests to %s of fingerprint %s are refused: replicas died of it",
                self.name,
                fingerprint,
            )

    def is_quarantined(self, fingerprint: int, now: float) -> bool:
        """Return whether replicas have died of this request."""
        return self._has_suspects and self._quarantine.is_quarantined(
            f"{fingerprint:x}", now
        )

    def learn_limit(
        self, pool: ReplicaPool, in_flight: int, seconds: float, expected_seconds: float
    ) -> None:
        """Learn how many requests a replica takes at once from the time that one took.

        Args:
            in_flight: Requests in flight there when this one was sent.
        """
        limit = self._limits.get(pool.state.name)
        if limit is None:
            return
        limit.observe(
            in_flight,
            seconds + LIMIT_SLACK_SECONDS,
            expected_seconds + LIMIT_SLACK_SECONDS,
        )
        pool.state.limit = limit.limit

    def measure(self, now: float) -> None:
        """Bring the gauges up to date."""
        self.metrics.queued = self.waiting
        self.metrics.replicas = sum(state.ejected_until <= now for state in self.states)
        self._leaving = [pool for pool in self._leaving if pool.state.in_flight]
        ended = 0
        seconds = 0.0
        for pool in (*self._leaving, *self.pools.values()):
            pool.counters.in_flight = pool.state.in_flight
            ended += sum(pool.counters.request_seconds.counts)
            seconds += pool.counters.request_seconds.sum
        if ended:
            self._mean_seconds = seconds / ended

    def replicas_in_use(self) -> set[str]:
        """Return the names of replicas that are listed or still answer requests."""
        return {*self.pools, *(pool.state.name for pool in self._leaving)}

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
        for name in self.ejection.due_probes(now):
            if name not in self._probes:
                self._probe(name, now)
        for name, probe in list(self._probes.items()):
            is_well = probe.result(now)
            if is_well is not None:
                del self._probes[name]
                self._note_probe(name, probe, now, is_well=is_well)
        self.send_waiting(now)

    def _probe(self, name: str, now: float) -> None:
        pool = self.pools.get(name)
        if pool is not None:
            self._probes[name] = ReplicaProbe(pool, self.entry.models[0], now)

    def _note_probe(
        self, name: str, probe: ReplicaProbe, now: float, *, is_well: bool
    ) -> None:
        pool = self.pools.get(name)
        if pool is not probe.pool:
            return
        self.ejection.note_probe(name, is_well, now)
        if not self.ejection.is_ejected(name, now):
            pool.state.ejected_until = 0.0
            log.info("replica %s of %s gets requests again", name, self.name)


def _is_same_replica(old: ReplicaEntry, new: ReplicaEntry) -> bool:
    """Return whether what was learned of a replica holds for its new entry."""
    return msgspec.structs.replace(old, draining=new.draining) == new


def _free(states: Sequence[ReplicaState], now: float) -> Iterator[ReplicaState]:
    """Return the replicas that can take a request now."""
    for state in states:
        if state.ejected_until <= now and (
            state.limit is None or state.in_flight < state.limit
        ):
            yield state
