"""Engine whose nodes come from a batch system. In the head, it does for these nodes
what an agent does for other nodes."""

import asyncio
import logging
import secrets
from collections.abc import Awaitable, Callable, Mapping, Sequence, Set
from contextlib import suppress
from dataclasses import dataclass, field, replace
from hashlib import sha256
from pathlib import Path
from typing import Final

from corral.domain.desired_state import DesiredState, Launch
from corral.domain.engine_limit import EngineLimit
from corral.domain.errors import Refusal, Trouble
from corral.domain.external_candidate import ExternalCandidate
from corral.domain.ids import ClusterId, JobId, NodeId, QueueName
from corral.domain.node import NodeKind
from corral.domain.observed_state import AttemptKey, ExternalPlacing, NodeFacts
from corral.domain.pilot import part_of
from corral.domain.resources import Shape
from corral.engines.batch.attempts import Desk, Due
from corral.engines.batch.external_queue import Asking
from corral.engines.batch.interfaces import (
    BatchSnapshot,
    BatchSystem,
    PartFiles,
    PlacingDriver,
)
from corral.ports.engine import Placer, query_failure
from corral.wire.node import encode_settings
from corral.wire.shim_launch import early_of

AT_ONCE: Final = 8  # attempts that are handed over side by side
NEWS_SECONDS: Final = 0.1  # between two looks, however much news there is
STALE_SECONDS: Final = 5.0  # a look this old speaks for the nodes no longer
LONGEST_PAUSE_SECONDS: Final = 30.0
LATE_SECONDS: Final = 2.0  # a look that takes this long is reported
log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class HeadLinks:
    """Functions of the head that an engine needs.

    `push` sends a desired state to the connected agent of a node or pilot. `hear`
    passes the report of a node to the head. `register` makes the head accept a token,
    by its SHA-256, and `forget` removes the tokens of an agent. `wake` starts a pass of
    the head now. `serving` is the head's serving clock, in seconds. `cluster` is known
    from the engine's start on. `hears` returns whether a node's agent is connected.
    `waiting` returns the shapes of the waiting jobs, in their order. `queues` returns a
    job's queue and the queues above it, the nearest first; the result is empty for a
    job that the head does not have.
    """

    push: Callable[[DesiredState], None]
    hear: Callable[[NodeFacts], None]
    register: Callable[[NodeId, str], Awaitable[None]]
    forget: Callable[[NodeId], Awaitable[None]]
    wake: Callable[[], None]
    serving: Callable[[], float]
    cluster: Callable[[], ClusterId]
    hears: Callable[[NodeId], bool] = lambda node: False
    waiting: Callable[[], Sequence[Shape]] = tuple
    workdir: Callable[[str], Path | None] = lambda digest: None
    queues: Callable[[JobId], Sequence[QueueName]] = lambda job: ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Pause:
    """Delay before a failed call is repeated."""

    until: float = 0.0
    seconds: float = 0.0

    def after_failure(self, at: float) -> "Pause":
        """Return the delay after one more failure. It is twice as long, up to a limit."""
        seconds = min(max(1.0, self.seconds * 2), LONGEST_PAUSE_SECONDS)
        return Pause(until=at + seconds, seconds=seconds)


@dataclass(slots=True, kw_only=True)
class LendingEngine:
    """Implements ports.Engine. Made and used in the head's loop."""

    name: str
    cannot: Mapping[str, EngineLimit]
    driver: BatchSystem
    restarts_in_place: bool = False
    could_bring: Sequence[NodeKind] = ()
    shown_by: str = ""
    links: HeadLinks
    look_seconds: float = 1.0
    late_seconds: float = LATE_SECONDS
    # how its agents are to reach the head, for people
    way: Callable[[], str] = lambda: ""
    placing_driver: PlacingDriver | None = None  # the same, where it places by itself
    desk: Desk = field(default_factory=Desk)
    asking: Asking = field(default_factory=Asking)
    trouble: str = ""
    is_unreachable: bool = False
    _doors: asyncio.Semaphore = field(
        default_factory=lambda: asyncio.Semaphore(AT_ONCE)
    )
    _stir: asyncio.Event = field(default_factory=asyncio.Event)
    _task: asyncio.Task[None] | None = None
    _pauses: dict[tuple[str, AttemptKey], Pause] = field(default_factory=dict)
    _known: tuple[object, object] = ({}, {})  # proofs, and who was given nodes
    # parts that wait for their word
    _unfitted: set[NodeId] = field(default_factory=set)
    _looks: bool = False  # the batch system is being asked now
    _looked_at: float = 0.0
    _next_look: float = 0.0

    def __post_init__(self) -> None:
        self.desk = Desk(places=self.placing_driver is not None, lender=self.system)

    @property
    def system(self) -> str:
        """Return the proper name of the batch system, for texts: Slurm, Kubernetes."""
        return self.name.capitalize()

    @property
    def placer(self) -> Placer | None:
        """Return the engine's own placer if the batch system places jobs itself; else
        None."""
        return self if self.placing_driver is not None else None

    async def start(self) -> None:
        """Start to poll the batch system repeatedly. A poll without an answer is
        repeated."""
        self._task = asyncio.create_task(self._run_loop())

    def look_after(self) -> None:
        """Send the reports of the nodes to the head, even while a call to the batch
        system takes long.

        Raises: the exception that ended the engine's own task.
        """
        if self._task is not None and self._task.done() and not self._task.cancelled():
            self._task.result()
        self._publish_reports()

    def observe(self) -> Mapping[NodeId, str]:
        return self.desk.proofs()

    def gone(self) -> Set[NodeId]:
        return self.desk.gone()

    def apply(self, wanted: DesiredState) -> None:
        if self.placing_driver is not None:
            keys = [launch.key for launch in wanted.run] + [
                stop.key for stop in wanted.stop
            ]
            for key in keys:
                self.desk.begins(key, self.asking.begins(key))
        self.desk.want(wanted, _loop_time())
        for part_id in self.desk.parts_on(wanted.node):
            if desired_state := self.part_word(part_id):
                self.links.push(desired_state)
        self._stir.set()

    def offer(self, waiting: Sequence[ExternalCandidate]) -> None:
        self.asking.offer(waiting)
        self._stir.set()

    def placing(self) -> ExternalPlacing:
        return ExternalPlacing(chosen=self.asking.chosen(), says=self.asking.says())

    def says(self, key: AttemptKey) -> str:
        reason = self.desk.says(key)
        return self._with_way(reason) if self.desk.is_unheard(key) else reason

    def _with_way(self, message: str) -> str:
        return f"{message}; {advice}" if (advice := self.way()) else message

    def hear_part(self, word: NodeFacts) -> None:
        """Store the report of a pilot."""
        self.desk.hear(word.node, word.seen, word.signals)
        self._stir.set()

    def part_word(self, part: NodeId) -> DesiredState | None:
        """Return the newest desired state of a pilot, with its launch adapted to what
        the batch system has granted.

        Return None while the batch system has not reported all that the launch needs. A
        launch is final once it was sent.
        """
        desired_state = self.desk.part_word(part)
        if desired_state is None:
            return None
        run = [self.driver.fitted(launch) for launch in desired_state.run]
        if None in run:
            self._unfitted.add(part)
            return None
        self._unfitted.discard(part)
        return replace(
            desired_state, run=tuple(launch for launch in run if launch is not None)
        )

    def look_soon(self) -> None:
        """Poll the batch system earlier than planned, because its state has probably
        changed."""
        self._next_look = min(self._next_look, self._looked_at + NEWS_SECONDS)
        self._stir.set()

    def is_empty(self) -> bool:
        return not self.desk.attempts and not self.asking.asked

    async def down(self, *, kill: bool) -> None:
        """Stop the engine. With `kill`, every attempt is ended. Without it, the
        attempts continue to run and are found again later."""
        await self._stop()
        if kill:
            left_keys = [
                key for key, handed in self.desk.attempts.items() if handed.is_left
            ]
            left_keys += [
                key
                for key, queued_attempt in self.asking.asked.items()
                if queued_attempt.is_left
            ]
            for key in left_keys:
                await self._try_action(self.driver.cancel, "cancel", key)
        await self.driver.close()

    def close(self) -> None:
        if self._task is not None:
            self._task.cancel()

    async def _stop(self) -> None:
        self.close()
        if self._task is not None:
            await asyncio.gather(self._task, return_exceptions=True)

    async def _run_loop(self) -> None:
        """Run the engine's loop: carry out due actions at once when there is news, even
        during a long poll. Poll and send reports every `look_seconds`."""
        async with asyncio.TaskGroup() as group:
            while True:
                self._stir.clear()
                if not self._looks and _loop_time() >= self._next_look:
                    self._looks = True
                    self._looked_at, self._next_look = (
                        _loop_time(),
                        _loop_time() + self.look_seconds,
                    )
                    group.create_task(self._look())
                due = self.desk.due(_loop_time())
                for gang in due.submit:
                    self.desk.hand(gang[0].key)
                    group.create_task(self._submit_gang(gang))
                await self._execute_actions(due)
                self._publish_reports()
                await self._until_stirred()

    async def _until_stirred(self) -> None:
        """Wait for news, or until the next poll is due."""
        wait_seconds = None if self._looks else max(self._next_look - _loop_time(), 0.0)
        with suppress(TimeoutError):
            async with asyncio.timeout(wait_seconds):
                await self._stir.wait()

    async def _look(self) -> None:
        late = asyncio.get_running_loop().call_later(self.late_seconds, self._say_late)
        try:
            look = await self.driver.look()
        except Trouble as trouble:
            complaint = query_failure(self.system, trouble)
            if self.trouble != complaint:
                log.warning(complaint)
            self.trouble, self.is_unreachable = complaint, True
        else:
            self.is_unreachable = False
            self._note_troubles(look)
            self._process_snapshot(look)
        finally:
            late.cancel()
            self._looks = False
            self._stir.set()

    def _note_troubles(self, look: BatchSnapshot) -> None:
        """Store in `trouble` the poll's problems and attempts without contact. Log them
        if they are new."""
        unheard = self.desk.unheard()
        unheard_texts = (
            [self._with_way(f"{unheard[0]} (affected jobs: {len(unheard)})")]
            if unheard
            else []
        )
        trouble = "; ".join(
            f"{self.system}: {complaint}"
            for complaint in (*look.troubles, *unheard_texts)
        )
        if trouble and trouble != self.trouble:
            log.warning(trouble)
        self.trouble = trouble

    def _say_late(self) -> None:
        """Store in `trouble` that the batch system has not answered a poll for long,
        unless another problem is stored there."""
        self.trouble = (
            self.trouble
            or f"{self.system} has not answered for {self.late_seconds:g} s"
        )

    def _process_snapshot(self, look: BatchSnapshot) -> None:
        """Process a poll. If the batch system places jobs itself, `asking` handles
        those that wait there, as they have no attempt yet."""
        if self.placing_driver is not None:
            begun = self.desk.attempts.keys()
            self.asking.look(look, begun)
            tickets = tuple(ticket for ticket in look.tickets if ticket.key in begun)
            kept_keys = tuple(key for key in look.kept if key in begun)
            look = replace(look, tickets=tickets, kept=kept_keys)
        self.desk.look(look, _loop_time())
        for part_id in list(self._unfitted):
            if desired_state := self.part_word(part_id):
                self.links.push(desired_state)
        known_state = (dict(self.desk.proofs()), dict(self.asking.chosen()))
        if known_state != self._known:
            self._known = known_state
            self.links.wake()

    async def _execute_actions(self, due: Due) -> None:
        """Carry out the actions that are due. Each action is tried again in the next
        round until it succeeds."""
        for key in due.withhold:
            if await self._try_action(self.driver.withhold, "withhold", key):
                self.desk.withheld(key)
        for key in due.cancel:
            await self._try_action(self.driver.cancel, "cancel", key)
        # a look would still show what has just gone
        for key in () if self._looks else due.forget:
            node_ids = self.desk.attempts[key].where
            if await self._try_action(self.driver.forget, "forget", key):
                for node in node_ids:
                    await self.links.forget(part_of(node, key))
                    self._unfitted.discard(part_of(node, key))
                self.desk.forgotten(key)
        if self.placing_driver is not None and not self._looks:
            await self._act_on_line(self.placing_driver)

    async def _act_on_line(self, driver: PlacingDriver) -> None:
        """Submit, cancel and forget jobs in the batch system's own queue, as far as
        that is due."""
        due = self.asking.due(_loop_time())
        await asyncio.gather(*(self._ask(driver, group) for group in due.ask))
        for key in due.cancel:
            await self._try_action(driver.cancel, "cancel", key)
        for key in due.forget:
            if await self._try_action(driver.forget, "forget", key):
                self.asking.forgotten(key, _loop_time())

    async def _ask(
        self, driver: PlacingDriver, group: Sequence[ExternalCandidate]
    ) -> None:
        first_key = group[0].key
        try:
            async with self._doors:
                await driver.ask(group)
        except Refusal as refusal:
            log.warning("attempt %s.%s is refused: %s", *first_key, refusal.message)
            self.asking.refused(group, refusal.full_text)
        except Trouble as trouble:
            log.warning(
                "attempt %s.%s could not be submitted: %s", *first_key, trouble.message
            )
        else:
            self.asking.submitted(group)

    async def _submit_gang(self, gang: Sequence[Launch]) -> None:
        key = gang[0].key
        try:
            part_files = await asyncio.gather(*(self._part(launch) for launch in gang))
            async with self._doors:
                files_by_node = {
                    launch.seat.node: node_files
                    for launch, node_files in zip(gang, part_files, strict=True)
                }
                if self.placing_driver is not None:
                    await self.placing_driver.equip(gang, files_by_node)
                else:
                    await self.driver.submit(gang, files_by_node)
        except Refusal as refusal:
            log.warning("attempt %s.%s is refused: %s", *key, refusal.message)
            self.desk.refused(key, refusal.full_text, infra=False)
        except Trouble as trouble:
            log.warning(
                "attempt %s.%s could not be submitted: %s", *key, trouble.message
            )
            self.desk.not_submitted(key)
        else:
            self.desk.submitted(key)
            self._stir.set()

    async def _part(self, launch: Launch) -> PartFiles:
        part_id = part_of(launch.seat.node, launch.key)
        token = secrets.token_urlsafe(32).encode()
        await self.links.register(part_id, sha256(token).hexdigest())
        settings = self.driver.settings_of(part_id, launch)
        fitted = self.driver.fitted(launch)
        workdir = None if launch.workdir is None else self.links.workdir(launch.workdir)
        has_workdir = workdir is not None
        early = (
            None
            if fitted is None
            else early_of(fitted, settings, has_workdir=has_workdir)
        )
        return PartFiles(
            settings=encode_settings(settings),
            token=token + b"\n",
            early=b"" if early is None else early.encode(),
            workdir=workdir,
        )

    async def _try_action(
        self, ask: Callable[[AttemptKey], Awaitable[None]], what: str, key: AttemptKey
    ) -> bool:
        """Try the action `what` and return whether it succeeded now. False without a
        try during the pause after a failure. Each failure doubles the pause."""
        pause = self._pauses.get((what, key), Pause())
        if _loop_time() < pause.until:
            return False
        try:
            await ask(key)
        except Trouble as trouble:
            log.warning("could not %s attempt %s.%s: %s", what, *key, trouble.message)
            self._pauses[(what, key)] = pause.after_failure(_loop_time())
            return False
        self._pauses.pop((what, key), None)
        return True

    def _publish_reports(self) -> None:
        """Pass the report of each node to the head."""
        looked_at = self.desk.looked_at
        if looked_at is None:
            return
        is_stale = _loop_time() - looked_at > self.look_seconds + STALE_SECONDS
        for node_facts in self.desk.words(self.links.serving(), is_stale=is_stale):
            self.links.hear(node_facts)


def _loop_time() -> float:
    return asyncio.get_running_loop().time()
