"""Convergence to the desired state: the node runs the attempts that the head wants and
no others. Attempts that the head does not name are left alone."""

import asyncio
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Protocol

from corral.agent.fetch_inputs import NotStarted, Prepare
from corral.agent.image.root import ImageRoot
from corral.agent.job_account import JobAccount
from corral.agent.last_desired import LastDesired
from corral.domain.active_checks import CheckUp
from corral.domain.desired_state import DesiredState, Launch, Stop, TimeWarning, Version
from corral.domain.ids import BootId
from corral.domain.keep_rule import SaveKey
from corral.domain.observed_state import AttemptKey, Phase, Seen

# a settled attempt waits no longer for its logs to be shipped
LOG_SECONDS: Final = 30.0
log = logging.getLogger(__name__)


class Ranks(Protocol):
    """Interface: the part of the supervisor that applies the desired state. Every
    method may be called repeatedly."""

    @property
    def launches(self) -> Mapping[AttemptKey, Launch]: ...

    async def launch(
        self,
        launch: Launch,
        work: Path,
        env: Mapping[str, str],
        image: ImageRoot | None = None,
        account: JobAccount | None = None,
    ) -> None: ...

    def stop(self, stop: Stop) -> None: ...

    def committed(
        self,
        key: AttemptKey,
        steps: tuple[int, ...],
        pinned: tuple[SaveKey, ...] = (),
    ) -> None: ...

    def warn(self, notice: TimeWarning) -> None: ...

    def settle(self, key: AttemptKey) -> None: ...

    def refuse(self, key: AttemptKey, why: str, infra: bool, of: str = "") -> None: ...

    def overrun(self, key: AttemptKey, why: str) -> None: ...

    def free_memory(self) -> None: ...

    def seen(self) -> tuple[Seen, ...]: ...


class Models(Protocol):
    """Interface: gives attempts their models."""

    async def variables(
        self, launch: Launch, secrets: Mapping[str, str], account: JobAccount | None
    ) -> dict[str, str]: ...


class Checker(Protocol):
    """Interface of the runner of checks, which run while no job runs on the node."""

    def want(self, checkup: CheckUp | None) -> None: ...

    async def clear(self) -> None: ...


@dataclass(slots=True, kw_only=True)
class Obedience:
    """Applies the newest desired state from the head to the node. A desired state is
    skipped when a newer one has replaced it, because each is complete.

    `drained` returns whether the head has the logs of an ended attempt; only then is
    the attempt removed.
    """

    ranks: Ranks
    known: LastDesired
    prepare: Prepare
    changed: Callable[[], None]
    drained: Callable[[AttemptKey], bool]
    environment: Callable[[Launch], Mapping[str, str]]
    boot: BootId
    checks: Checker
    models: Models
    # of the newest word obeyed in this life of the agent
    version: Version | None = None
    # attempts that are to run, by that word
    launches: Mapping[AttemptKey, Launch] = field(default_factory=dict)
    # those of them whose engine is to sleep
    asleep: frozenset[AttemptKey] = frozenset()
    _newest: DesiredState | None = None
    _arrived: asyncio.Event = field(default_factory=asyncio.Event)
    _preparing: dict[AttemptKey, asyncio.Task[None]] = field(default_factory=dict)
    _launching: set[AttemptKey] = field(default_factory=set)
    _late_stops: dict[AttemptKey, Stop] = field(default_factory=dict)
    _settling: dict[AttemptKey, float] = field(default_factory=dict)  # since when

    def wanted(self, wanted: DesiredState) -> None:
        """Store a desired state as the newest one; `run` then applies it."""
        self._newest = wanted
        self._arrived.set()

    async def run(self) -> None:
        """Apply each new desired state, for ever.

        Raises: OSError when the node's disk cannot store the newest version.
        """
        while True:
            await self._arrived.wait()
            self._arrived.clear()
            desired_state = self._newest
            if desired_state is None:
                continue
            if refusal_reason := self.known.why_not(desired_state) or self._other_boot(
                desired_state
            ):
                log.error(
                    "a desired state from the head is refused: %s", refusal_reason
                )
                continue
            self.known.keep(desired_state)
            self.obey(desired_state)
            self.version = desired_state.version
            self.changed()

    def _other_boot(self, wanted: DesiredState) -> str:
        """Return the reason to refuse a desired state that is for an earlier boot of
        the node; "" if it may be applied. The head counts the attempts of an earlier
        boot as gone."""
        if wanted.boot in ("", self.boot):
            return ""
        return (
            f"the desired state is for boot {wanted.boot} of this node, but the current "
            f"boot is {self.boot}"
        )

    def obey(self, wanted: DesiredState) -> None:
        self.launches = {launch.key: launch for launch in wanted.run}
        self.asleep = frozenset(wanted.asleep)
        present = {attempt.key for attempt in self.seen()}
        stops = {stop.key for stop in wanted.stop}
        for launch in wanted.run:
            if launch.key not in present and launch.key not in stops:
                self._begin_launch(launch)
        for stop in wanted.stop:
            if stop.key in self._preparing:
                self._stop_early(stop)
            elif stop.key in present:
                self.ranks.stop(stop)
            else:  # the head waits for a word before it gives the GPUs to another
                self.ranks.refuse(stop.key, "the attempt is not on this node", True)
        pinned = dict(wanted.pinned)
        for key, steps in wanted.committed:
            if key in present:
                self.ranks.committed(key, steps, pinned.get(key, ()))
        for notice in wanted.notices:
            if notice.key in present:
                self.ranks.warn(notice)
        for key in wanted.settled:
            if key in present:
                self._settling.setdefault(key, asyncio.get_running_loop().time())
        self.settle_drained()
        self.checks.want(wanted.checkup)

    def seen(self) -> tuple[Seen, ...]:
        """Return the state of each attempt on the node, including attempts that are
        still being prepared."""
        seens = self.ranks.seen()
        keys = {attempt.key for attempt in seens}
        early = [
            Seen(key=key, phase=Phase.STARTING)
            for key in self._preparing
            if key not in keys
        ]
        return (*seens, *early)

    def settle_drained(self) -> None:
        """Remove the attempts whose end the head has recorded, as soon as the head has
        their logs too."""
        now = asyncio.get_running_loop().time()
        for key, settling_since in list(self._settling.items()):
            late = now - settling_since > LOG_SECONDS
            if late:
                log.warning(
                    "the last log lines of attempt %s.%s did not reach the head", *key
                )
            if late or self.drained(key):
                del self._settling[key]
                self.ranks.settle(key)
                self.changed()

    async def close(self) -> None:
        """Cancel the preparation of attempts; the node's next agent starts the
        preparation again."""
        for key, task in self._preparing.items():
            if key not in self._launching:
                task.cancel()
        await asyncio.gather(*self._preparing.values(), return_exceptions=True)

    def _begin_launch(self, launch: Launch) -> None:
        task = asyncio.create_task(self._start(launch))
        self._preparing[launch.key] = task
        task.add_done_callback(lambda _: self._finish_preparing(launch.key))

    async def _start(self, launch: Launch) -> None:
        key = launch.key
        try:
            account = await self.prepare.account(launch)
            work, secrets, image, _ = await asyncio.gather(
                self.prepare.work(launch),
                self._secrets_and_model(launch, account),
                self.prepare.image(launch, account),
                self.checks.clear(),
            )
            self._launching.add(key)
            env = {**secrets, **self.environment(launch)}
            await self.ranks.launch(launch, work, env, image, account)
        except asyncio.CancelledError:
            if key not in self._late_stops:
                raise
            self.ranks.refuse(key, "the attempt was stopped before it started", False)
        except NotStarted as trouble:
            self.ranks.refuse(key, trouble.message, trouble.infra, trouble.of)
        except OSError as trouble:
            reason = f"the attempt cannot be started on this node: {trouble}"
            self.ranks.refuse(key, reason, True)
        except Exception as bug:
            log.exception("a bug in Corral: attempt %s.%s cannot be started", *key)
            self.ranks.refuse(key, f"a bug in Corral: {bug!r}", True)

    async def _secrets_and_model(
        self, launch: Launch, account: JobAccount | None
    ) -> Mapping[str, str]:
        """Return the secrets of the attempt, and the variable with the path of its
        model, which is on the node then. Raises: NotStarted."""
        secrets = await self.prepare.secrets(launch)
        return {**secrets, **await self.models.variables(launch, secrets, account)}

    def _finish_preparing(self, key: AttemptKey) -> None:
        self._preparing.pop(key, None)
        self._launching.discard(key)
        stop = self._late_stops.pop(key, None)
        if stop is not None and key in {attempt.key for attempt in self.ranks.seen()}:
            self.ranks.stop(stop)
        self.changed()

    def _stop_early(self, stop: Stop) -> None:
        """Stop an attempt that is starting. An attempt still in preparation is
        cancelled at once; other attempts are stopped as soon as their ranks exist."""
        self._late_stops[stop.key] = stop
        if stop.key not in self._launching:
            self._preparing[stop.key].cancel()
