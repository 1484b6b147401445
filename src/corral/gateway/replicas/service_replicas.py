"""Replicas of one service as the gateway chooses among them."""

from collections.abc import Collection, Iterator, Sequence
from typing import Final

import msgspec

from corral.gateway.counting.gateway_metrics import ServiceMetrics
from corral.gateway.framing.answer_framing import AnswerHeads
from corral.gateway.replicas.exact_affinity import ExactAffinity
from corral.gateway.replicas.replica_pool import ReplicaPool
from corral.route.choice import ReplicaState
from corral.route.concurrency_limit import ConcurrencyLimit
from corral.route.expected_output import ExpectedOutput
from corral.route.first_token_deadline import FirstTokenDeadline
from corral.route.prefill_choice import PrefillRule
from corral.wire.gateway_routes import ReplicaEntry, ServiceEntry

ROUNDING: Final = 1e-9
MOST_RETRY_SECONDS: Final = 60.0
# a wait below this is no sign of overload, whatever the least one was
LIMIT_SLACK_SECONDS: Final = 0.25
USUAL_OUTPUT_LIMIT: Final = 4096
SLOWEST_TOKEN_SECONDS: Final = 0.1


class ServiceReplicas:
    """Replicas of one service: what the routes file says, and what was learned of them.

    Attributes:
        states: Replicas that take requests, without those that only compute prompts.
        has_canary: Whether a part of the requests goes to a canary.
        prefill: When the prompts of requests are computed apart.
    """

    __slots__ = (
        "_by_revision",
        "_canary_choices",
        "_canary_credit",
        "_heads",
        "_leaving",
        "_limits",
        "_prefill_states",
        "_tie",
        "affinity",
        "entry",
        "expected_output",
        "first_tokens",
        "has_canary",
        "metrics",
        "name",
        "pools",
        "prefill",
        "states",
        "usual_choices",
    )

    def __init__(
        self, entry: ServiceEntry, metrics: ServiceMetrics, heads: AnswerHeads
    ) -> None:
        self.name = entry.name
        self.entry = entry
        self.metrics = metrics
        self.pools: dict[str, ReplicaPool] = {}
        self.states: list[ReplicaState] = []
        self.expected_output = ExpectedOutput()
        self.first_tokens = FirstTokenDeadline()
        self.prefill = PrefillRule()
        self._heads = heads
        self._limits: dict[str, ConcurrencyLimit] = {}
        self._tie = 0
        self.affinity = ExactAffinity(entry.name)
        self._leaving: list[ReplicaPool] = []
        self._canary_credit = 0.0

    def _take_replicas(self) -> list[str]:
        """Take the replicas of the entry; unchanged ones keep what was learned. Return
        the names of those that are new or have changed."""
        entry = self.entry
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
        self.affinity.follow(self.pools)
        return changed

    def _add_replica(self, replica: ReplicaEntry) -> ReplicaPool:
        limit = ConcurrencyLimit()
        self._limits[replica.name] = limit
        index = self.affinity.index_of(replica)
        state = ReplicaState(replica.name, index, limit=limit.limit)
        counters = self.metrics.replica(replica.name, replica.revision)
        return ReplicaPool(replica, state, self._heads, counters)

    def _update_choices(self) -> None:
        """Group the replicas that take requests by what requests may reach them."""
        ready = [pool for pool in self.pools.values() if not pool.entry.draining]
        listed = [pool for pool in ready if not pool.is_prefill]
        self._prefill_states: dict[int | None, list[ReplicaState]] = {}
        for pool in ready:
            if pool.is_prefill:
                states = self._prefill_states.setdefault(pool.entry.revision, [])
                states.append(pool.state)
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

    def role_states(
        self, pool: ReplicaPool
    ) -> tuple[list[ReplicaState], list[ReplicaState]]:
        """Return the replicas that decode and those that compute prompts, of the same
        revision as this one."""
        revision = pool.entry.revision
        decode = self.states if revision is None else self._by_revision[revision]
        return decode, self._prefill_states.get(revision, [])

    @property
    def revisions(self) -> list[int]:
        """Numbers of the revisions whose replicas take requests."""
        return sorted(self._by_revision)

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
        return any(state.name not in excluded for state in free_states(states, now))

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

    def replicas_in_use(self) -> set[str]:
        """Return the names of replicas that are listed or still answer requests."""
        return {*self.pools, *(pool.state.name for pool in self._leaving)}


def _is_same_replica(old: ReplicaEntry, new: ReplicaEntry) -> bool:
    """Return whether what was learned of a replica holds for its new entry."""
    return msgspec.structs.replace(old, draining=new.draining) == new


def free_states(states: Sequence[ReplicaState], now: float) -> Iterator[ReplicaState]:
    """Return the replicas that can take a request now."""
    for state in states:
        if state.ejected_until <= now and (
            state.limit is None or state.in_flight < state.limit
        ):
            yield state
