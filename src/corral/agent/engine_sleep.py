"""Sleep of the engines of replicas: requests that put them to sleep and wake them, as
the head decides, and the state that they report."""

import asyncio
import json
import logging
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from corral.agent.engine_http import request_engine
from corral.domain.desired_state import Launch
from corral.domain.job import SleepCalls
from corral.domain.observed_state import AttemptKey, Phase, Seen

LOOK_SECONDS: Final = 2.0  # between looks at an engine whose state is as wanted
CHANGE_SECONDS: Final = 0.1  # the same while it is not
STATE_SECONDS: Final = 5.0  # for an answer about the state
CALL_SECONDS: Final = 300.0  # for an answer to a request to sleep or to wake
log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class SleepingEngine:
    """Address of an engine, its key, and the requests by which it sleeps and wakes."""

    host: str
    port: int
    key: str = field(repr=False)
    calls: SleepCalls

    async def is_asleep(self) -> bool | None:
        """Return whether the engine sleeps; None if it does not say so."""
        try:
            async with asyncio.timeout(STATE_SECONDS):
                status, body = await self._request("GET", self.calls.state, "")
                state = json.loads(body) if status == 200 else None
        except (OSError, ValueError, TimeoutError, asyncio.IncompleteReadError):
            return None
        value = state.get(self.calls.state_field) if isinstance(state, dict) else None
        return value if isinstance(value, bool) else None

    async def put_to_sleep(self) -> None:
        """Ask the engine to sleep. One that falls asleep by itself is not asked."""
        if self.calls.sleep:
            await self._call(self.calls.sleep, "")

    async def wake(self) -> None:
        """Ask the engine to wake, and wait for its answer."""
        await self._call(self.calls.wake, self.calls.wake_body)

    async def _call(self, path: str, body: str) -> None:
        try:
            async with asyncio.timeout(CALL_SECONDS):
                status, _ = await self._request("POST", path, body)
        except (OSError, ValueError, TimeoutError, asyncio.IncompleteReadError) as why:
            log.warning("POST %s to port %d has failed: %r", path, self.port, why)
            return
        if not 200 <= status < 300:
            log.warning(
                "POST %s to port %d was answered by %d", path, self.port, status
            )

    async def _request(self, method: str, path: str, body: str) -> tuple[int, bytes]:
        return await request_engine(self.host, self.port, self.key, method, path, body)


@dataclass(slots=True)
class _FollowedEngine:
    engine: SleepingEngine
    is_wanted_asleep: bool = False
    is_asleep: bool | None = None
    # an engine may also fall asleep by itself while it is to serve; it is not woken then
    is_woken: bool = False
    changed: asyncio.Event = field(default_factory=asyncio.Event)
    following: asyncio.Task[None] | None = None

    def stop(self) -> None:
        if self.following is not None:
            self.following.cancel()


class EngineSleep:
    """Sleep of the engines of all replicas whose first node this is. `on_change` is
    called when one of them has fallen asleep or woken."""

    def __init__(self, on_change: Callable[[], None]) -> None:
        self._on_change = on_change
        self._engines: dict[AttemptKey, _FollowedEngine] = {}

    def follow(
        self,
        launches: Mapping[AttemptKey, Launch],
        asleep: Collection[AttemptKey],
        seens: Iterable[Seen],
    ) -> None:
        """Put engines to sleep, wake them, and end this for those that do not run.

        Args:
            launches: The attempts that are to run.
            asleep: Those whose engine is to sleep.
            seens: The state of all attempts on the node.
        """
        up = {seen.key for seen in seens if seen.phase == Phase.UP}
        for key in self._engines.keys() - (up & launches.keys()):
            self._engines.pop(key).stop()
        for key in up & launches.keys():
            if key not in self._engines:
                self._add_engine(launches[key])
            followed = self._engines.get(key)
            is_wanted = key in asleep
            if followed is not None and followed.is_wanted_asleep != is_wanted:
                followed.is_wanted_asleep = is_wanted
                followed.is_woken = False
                followed.changed.set()

    def _add_engine(self, launch: Launch) -> None:
        replica = launch.replica
        if replica is None or replica.sleep is None or launch.node_rank != 0:
            return
        engine = SleepingEngine(
            host=launch.master_address,
            port=launch.listening_port,
            key=replica.key,
            calls=replica.sleep,
        )
        followed = _FollowedEngine(engine)
        followed.following = asyncio.create_task(self._keep_following(followed))
        self._engines[launch.key] = followed

    def reported(self, seens: Iterable[Seen]) -> tuple[Seen, ...]:
        """Return the attempts, those of replicas with the state of their engine."""
        return tuple(
            replace(seen, is_asleep=self._engines[seen.key].is_asleep)
            if seen.key in self._engines
            else seen
            for seen in seens
        )

    async def _keep_following(self, followed: _FollowedEngine) -> None:
        """Bring the engine into the wanted state again and again, for ever."""
        while True:
            followed.changed.clear()
            await self._look(followed)
            if self._is_done(followed):
                seconds = LOOK_SECONDS
            else:
                await self._bring(followed)
                await self._look(followed)
                seconds = CHANGE_SECONDS
            try:
                async with asyncio.timeout(seconds):
                    await followed.changed.wait()
            except TimeoutError:
                continue

    def _is_done(self, followed: _FollowedEngine) -> bool:
        if (
            followed.is_asleep is None
            or followed.is_asleep is followed.is_wanted_asleep
        ):
            followed.is_woken |= followed.is_asleep is False
            return True
        return not followed.is_wanted_asleep and followed.is_woken

    async def _bring(self, followed: _FollowedEngine) -> None:
        if followed.is_wanted_asleep:
            await followed.engine.put_to_sleep()
        else:
            await followed.engine.wake()

    async def _look(self, followed: _FollowedEngine) -> None:
        is_asleep = await followed.engine.is_asleep()
        if is_asleep is not followed.is_asleep:
            followed.is_asleep = is_asleep
            self._on_change()

    async def close(self) -> None:
        """End all of it."""
        tasks = [
            followed.following
            for followed in self._engines.values()
            if followed.following is not None
        ]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
