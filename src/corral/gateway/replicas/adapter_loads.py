"""Adapters of one service: on which replicas they are loaded, and how they get there."""

import asyncio
import logging
from collections.abc import Coroutine, Mapping, Sequence
from typing import Any, Final, Protocol

from corral.gateway.counting.gateway_metrics import ServiceMetrics
from corral.gateway.openai_errors import GatewayCode, GatewayRefusal
from corral.gateway.replicas.adapter_calls import ADAPTER_CALLS, AdapterCalls
from corral.gateway.replicas.engine_call import EngineCallFailed
from corral.gateway.replicas.replica_pool import ReplicaPool
from corral.route.adapter_slots import AdapterSlots
from corral.route.choice import ReplicaState
from corral.wire.gateway_routes import AdapterEntry, ServiceEntry

log = logging.getLogger(__name__)

FIRST_LOAD_SECONDS: Final = 2.0  # that a load takes, until one was measured
LEARNING_WEIGHT: Final = 0.3
LONGEST_LOAD_SECONDS: Final = 120.0
LIST_SECONDS: Final = 30.0  # between two lists of a replica's adapters
ANSWER_SECONDS: Final = 10.0
DEADLINE_SHARE: Final = 0.8  # of a request's deadline, after which a load has failed


class AdapterWaiter(Protocol):
    """A request that waits until its adapter is loaded."""

    def adapter_ready(self, attempt: object) -> None:
        """Send the attempt."""

    def adapter_failed(self, attempt: object) -> None:
        """Go on at another replica, or refuse the request."""


class _ReplicaAdapters:
    """Adapters of one replica: slots, the engine's names of those that are loaded, when
    they are listed next, and the requests that wait for a load."""

    __slots__ = ("is_listed", "list_at", "names", "pool", "slots", "waiting")

    def __init__(self, pool: ReplicaPool, most: int) -> None:
        self.pool = pool
        self.slots = AdapterSlots(most)
        self.names: dict[str, str] = {}
        self.is_listed = False
        self.list_at = 0.0
        self.waiting: dict[str, list[tuple[AdapterWaiter, object]]] = {}


class AdapterLoads:
    """Adapters of one service, as its replicas have them."""

    __slots__ = (
        "_calls",
        "_entry",
        "_errors",
        "_load_seconds",
        "_metrics",
        "_replicas",
        "_tasks",
        "by_name",
    )

    def __init__(self, metrics: ServiceMetrics) -> None:
        self.by_name: dict[str, AdapterEntry] = {}
        self._metrics = metrics
        self._calls: AdapterCalls | None = None
        self._entry: ServiceEntry | None = None
        self._load_seconds = FIRST_LOAD_SECONDS
        self._replicas: dict[str, _ReplicaAdapters] = {}
        self._errors: dict[str, str] = {}  # newest, by adapter
        self._tasks: set[asyncio.Task[None]] = set()

    def update(self, entry: ServiceEntry, pools: Mapping[str, ReplicaPool]) -> None:
        """Take the adapters and replicas of a new state."""
        previous = self.by_name
        self._entry = entry
        self._calls = ADAPTER_CALLS.get(entry.adapter_calls)
        self.by_name = {adapter.name: adapter for adapter in entry.adapters}
        changed = [
            name
            for name, adapter in previous.items()
            if self.by_name.get(name) != adapter
        ]
        for name, replica in list(self._replicas.items()):
            if pools.get(name) is not replica.pool:
                del self._replicas[name]
                continue
            replica.slots.most = max(1, entry.max_adapters)
            replica.slots.replace(changed)

    def _of(self, pool: ReplicaPool) -> _ReplicaAdapters:
        replica = self._replicas.get(pool.state.name)
        if replica is None or replica.pool is not pool:
            assert self._entry is not None
            replica = _ReplicaAdapters(pool, max(1, self._entry.max_adapters))
            self._replicas[pool.state.name] = replica
        return replica

    def _present(self, pool: ReplicaPool) -> _ReplicaAdapters | None:
        """Return what is known of a replica; None if it has left the routes."""
        replica = self._replicas.get(pool.state.name)
        return replica if replica is not None and replica.pool is pool else None

    def prices(
        self, name: str, pools: Mapping[str, ReplicaPool], now: float
    ) -> dict[str, float]:
        """Return the seconds that a request for an adapter costs on top of its work, by
        the replicas that can have it now."""
        prices: dict[str, float] = {}
        for replica, pool in pools.items():
            slots = self._of(pool).slots
            seconds = slots.price_seconds(name, now, self._load_seconds)
            if seconds is not None:
                prices[replica] = seconds
        return prices

    def refusal(
        self,
        name: str,
        states: Sequence[ReplicaState],
        pools: Mapping[str, ReplicaPool],
        now: float,
    ) -> GatewayRefusal | None:
        """Return the refusal of a request for an adapter whose load has just failed on
        every replica; None if it may be tried."""
        if name not in self.by_name:
            return GatewayRefusal(
                GatewayCode.ADAPTER_FAILED, f"the adapter {name!r} was removed"
            )
        waits = [
            self._of(pools[state.name]).slots.retry_seconds(name, now)
            for state in states
        ]
        if not waits or min(waits) <= 0:
            return None
        return GatewayRefusal(
            GatewayCode.ADAPTER_FAILED,
            f"the adapter {name!r} cannot be loaded: {self._errors.get(name, '')}",
            retry_after=min(waits),
        )

    def use(self, pool: ReplicaPool, name: str) -> None:
        """Count an attempt for an adapter, which has to be released."""
        self._of(pool).slots.use(name)

    def release(self, pool: ReplicaPool, name: str) -> None:
        """Count the end of an attempt."""
        replica = self._present(pool)
        if replica is not None:
            replica.slots.release(name)

    def is_ready(self, pool: ReplicaPool, name: str) -> bool:
        """Return whether the replica has the adapter."""
        return self._of(pool).slots.is_loaded(name)

    def body_for(self, pool: ReplicaPool, name: str | None, body: bytes) -> bytes:
        """Return the body of a request for an adapter that the replica has.

        Args:
            name: Name of the adapter; None: the model itself.
        """
        if self._calls is None:
            return body
        adapter = None if name is None else self.by_name.get(name)
        if name is None or adapter is None:
            return self._calls.base_body(body)
        replica = self._present(pool)
        engine_name = name if replica is None else replica.names.get(name, name)
        return self._calls.body_for(body, adapter, engine_name)

    def forget(self, pool: ReplicaPool, name: str) -> None:
        """Count an adapter as not loaded, because the engine does not have it."""
        replica = self._present(pool)
        if replica is not None:
            replica.slots.forget(name)
            replica.names.pop(name, None)
            replica.is_listed = False

    def wait_for(
        self, pool: ReplicaPool, name: str, waiter: AdapterWaiter, attempt: object
    ) -> None:
        """Let a request wait until the replica has the adapter; the first one loads
        it."""
        replica = self._of(pool)
        waiting = replica.waiting.get(name)
        if waiting is not None:
            waiting.append((waiter, attempt))
            return
        loop = asyncio.get_running_loop()
        replica.waiting[name] = [(waiter, attempt)]
        victims = replica.slots.begin_load(name, loop.time())
        self._start(self._load(replica, name, victims))

    async def _load(
        self, replica: _ReplicaAdapters, name: str, victims: list[str]
    ) -> None:
        loop = asyncio.get_running_loop()
        began = loop.time()
        try:
            async with asyncio.timeout(self._longest_load_seconds):
                has_loaded = await self._ensure(replica, name, victims)
        except (EngineCallFailed, TimeoutError) as error:
            text = str(error) or "it takes too long"
            log.warning(
                "adapter %s cannot be loaded at %s: %s",
                name,
                replica.pool.entry.name,
                text,
            )
            self._errors[name] = text
            self._metrics.adapter_failures += 1
            replica.slots.note_failed(name, loop.time())
            for waiter, attempt in replica.waiting.pop(name):
                waiter.adapter_failed(attempt)
            return
        if has_loaded:
            seconds = loop.time() - began
            self._load_seconds += LEARNING_WEIGHT * (seconds - self._load_seconds)
            self._metrics.adapter_loads += 1
        replica.slots.note_loaded(name)
        for waiter, attempt in replica.waiting.pop(name):
            waiter.adapter_ready(attempt)

    @property
    def _longest_load_seconds(self) -> float:
        assert self._entry is not None
        return min(LONGEST_LOAD_SECONDS, DEADLINE_SHARE * self._entry.deadline_seconds)

    async def _ensure(
        self, replica: _ReplicaAdapters, name: str, victims: list[str]
    ) -> bool:
        """Load an adapter that the replica does not have. Return whether it was loaded
        now. Raises: EngineCallFailed."""
        calls, adapter = self._calls, self.by_name.get(name)
        if calls is None or adapter is None:
            raise EngineCallFailed("it was removed")
        pool = replica.pool
        if not replica.is_listed:
            await self._list(calls, replica)
            if name in replica.names:
                return False
        for victim in (*victims, *replica.slots.take_excess()):
            replica.names.pop(victim, None)
            await self._unload(calls, pool, victim)
        await calls.load(pool, adapter)
        replica.names[name] = name
        return True

    async def _list(self, calls: AdapterCalls, replica: _ReplicaAdapters) -> None:
        """Take what the engine lists: this or another gateway may have loaded it.

        Raises: EngineCallFailed.
        """
        loaded = await calls.loaded(replica.pool)
        replica.is_listed = True
        for adapter in self.by_name.values():
            engine_name = calls.engine_name(adapter, loaded)
            if engine_name is not None:
                replica.names[adapter.name] = engine_name
                replica.slots.note_listed(adapter.name)
                continue
            replica.names.pop(adapter.name, None)
            if adapter.name in loaded:
                replica.slots.note_stale(adapter.name)

    def sweep(self, pools: Mapping[str, ReplicaPool], now: float) -> None:
        """List the adapters of the replicas whose list is due."""
        calls = self._calls
        if calls is None or not self.by_name:
            return
        for pool in pools.values():
            replica = self._of(pool)
            if replica.list_at <= now:
                replica.list_at = now + LIST_SECONDS
                self._start(self._try_list(calls, replica))

    async def _try_list(self, calls: AdapterCalls, replica: _ReplicaAdapters) -> None:
        try:
            async with asyncio.timeout(ANSWER_SECONDS):
                await self._list(calls, replica)
        except (EngineCallFailed, TimeoutError) as error:
            log.info("adapters of %s: %s", replica.pool.entry.name, error)

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _unload(self, calls: AdapterCalls, pool: ReplicaPool, name: str) -> None:
        try:
            await calls.unload(pool, name)
        except EngineCallFailed as error:  # the engine itself may have unloaded it
            log.info("adapter %s of %s: %s", name, pool.entry.name, error)
        else:
            self._metrics.adapter_unloads += 1
