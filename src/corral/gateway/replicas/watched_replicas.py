"""Health of the replicas of one service: losses, ejection, probes and retries."""

import logging
from collections.abc import Callable, Iterable
from math import inf
from typing import Final

from corral.gateway.counting.gateway_metrics import ServiceMetrics
from corral.gateway.framing.answer_framing import AnswerHeads
from corral.gateway.replicas.replica_connection import LossKind
from corral.gateway.replicas.replica_pool import ReplicaPool
from corral.gateway.replicas.replica_probe import LivenessCheck, ReplicaProbe
from corral.gateway.replicas.service_replicas import ServiceReplicas
from corral.route.outlier_ejection import OutlierEjection, ReplicaFailure
from corral.route.quarantine import Quarantine
from corral.route.retry_budget import RetryBudget
from corral.wire.gateway_routes import ServiceEntry

log = logging.getLogger(__name__)

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


class WatchedReplicas(ServiceReplicas):
    """Replicas of one service, watched: those that fail get no requests until a probe
    shows that they are well.

    Attributes:
        in_flight_at: Fingerprints of the requests under way at a replica.
    """

    __slots__ = (
        "_has_suspects",
        "_prefill_ejection",
        "_probes",
        "_quarantine",
        "_retries",
        "ejection",
        "in_flight_at",
    )

    def __init__(
        self, entry: ServiceEntry, metrics: ServiceMetrics, heads: AnswerHeads
    ) -> None:
        super().__init__(entry, metrics, heads)
        self.ejection = OutlierEjection()
        # requests go on without replicas for prefill, so all of them may be ejected
        self._prefill_ejection = OutlierEjection(max_share=1.0)
        self.in_flight_at: Callable[[ReplicaPool], Iterable[int]] = lambda pool: ()
        self._probes: dict[str, ReplicaProbe] = {}
        self._quarantine = Quarantine()
        self._has_suspects = False
        self._retries = RetryBudget()

    def _take_replicas(self) -> list[str]:
        changed = super()._take_replicas()
        # a changed replica starts without the failures of its predecessor
        for is_prefill in (False, True):
            ejection = self._prefill_ejection if is_prefill else self.ejection
            names = [
                name
                for name, pool in self.pools.items()
                if pool.is_prefill is is_prefill
            ]
            ejection.set_replicas([name for name in names if name not in changed])
            ejection.set_replicas(names)
        return changed

    def _ejection_of(self, pool: ReplicaPool) -> OutlierEjection:
        return self._prefill_ejection if pool.is_prefill else self.ejection

    def withdraw(self) -> None:
        """Take no more requests: the service is no longer in the routes."""
        for pool in self.pools.values():
            pool.unlist()
        for probe in self._probes.values():
            probe.cancel()
        self.affinity.close()

    def note_success(self, pool: ReplicaPool, fingerprint: int, now: float) -> None:
        """Count an answer of a replica."""
        self._ejection_of(pool).note_success(pool.state.name, now)
        if self._has_suspects:
            self._quarantine.note_success(f"{fingerprint:x}")

    def note_failure(self, pool: ReplicaPool, kind: LossKind, now: float) -> None:
        """Count a lost answer, and eject the replica if it is due."""
        name = pool.state.name
        losses = pool.counters.losses
        losses[kind] = losses.get(kind, 0) + 1
        if kind is LossKind.BUSY or self.pools.get(name) is not pool:
            return  # no fault of the replica, or the routes have changed
        if self._ejection_of(pool).note_failure(name, FAILURES[kind], now):
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
        # a dead replica may refuse connections before those of its requests are cut;
        # what was cut first would look as if the replica had died of it alone
        cut = (*pool.take_losses(now), *self.in_flight_at(pool))
        losses = [f"{fingerprint:x}" for fingerprint in cut]
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

    def _sweep_probes(self, now: float) -> None:
        """Probe ejected replicas, and take the results."""
        for ejection in (self.ejection, self._prefill_ejection):
            for name in ejection.due_probes(now):
                if name not in self._probes:
                    self._probe(name, now)
        for name, probe in list(self._probes.items()):
            is_well = probe.result(now)
            if is_well is not None:
                del self._probes[name]
                self._note_probe(name, probe, now, is_well=is_well)

    def _probe(self, name: str, now: float) -> None:
        pool = self.pools.get(name)
        if pool is not None:
            self._probes[name] = ReplicaProbe(
                pool,
                self.entry.models[0],
                now,
                is_sglang_pair=self.entry.transfer == "sglang",
            )

    def _note_probe(
        self, name: str, probe: ReplicaProbe, now: float, *, is_well: bool
    ) -> None:
        pool = self.pools.get(name)
        if pool is not probe.pool:
            return
        ejection = self._ejection_of(pool)
        ejection.note_probe(name, is_well, now)
        if not ejection.is_ejected(name, now):
            pool.state.ejected_until = 0.0
            log.info("replica %s of %s gets requests again", name, self.name)
