"""Leader election among several heads: a head stands by until it may lead, and stands
by again when another head leads.

A head whose store is a file leads from its start to its end, because no other head can
lead.
"""

import asyncio
import ssl
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass, field
from typing import Final

from starlette.types import ASGIApp

from corral.agent.connection import first_of
from corral.api import ApiSettings, Channels, Forwarder, Front, Standby
from corral.api.log_quota import LogQuota
from corral.boot.audit_syslog import AuditSyslog
from corral.boot.gc_tuning import search_rarely
from corral.boot.retention_sweep import keep_swept
from corral.boot.service_gateway import ServiceGateway
from corral.control import Alerting, Control, Forecasts, Recorder
from corral.domain.errors import NoLeader, TermLost, Trouble
from corral.domain.ids import ClusterId, JobId, QueueName
from corral.domain.job_states import JobState
from corral.domain.leader_election import HeadNow, HeadSeen, Watch
from corral.domain.observed_state import NodeFacts
from corral.domain.resources import Shape
from corral.ports.clock import Clock
from corral.ports.engine import LivingEngine
from corral.ports.log import HeadLogger
from corral.ports.store import Store

LOOK_SECONDS: Final = 0.25
BEAT_SECONDS: Final = 1.0
# agents try a head that has been silent for longer only after all others
THERE_SECONDS: Final = 10.0
FORGET_SECONDS: Final = 86_400.0
log = HeadLogger("corral.head")


@dataclass(slots=True, kw_only=True)
class LeaderTerm:
    """Parts that exist only while this head leads, for one term.

    `lent`: an engine whose nodes are not processes of this machine. It works only for
    the leader, and is created again for each term. None with the local engine.
    """

    control: Control
    forecasts: Forecasts
    recorder: Recorder
    alerting: Alerting
    gateway: ServiceGateway
    app: ASGIApp
    log_quota: LogQuota
    batches: Callable[[], Coroutine[None, None, None]]
    lent: LivingEngine | None

    async def look_after(self) -> None:
        if self.lent is not None:
            await self.lent.start()
        while True:
            await asyncio.sleep(BEAT_SECONDS)
            if self.lent is not None:
                self.lent.look_after()

    def ways(self, about: ApiSettings) -> list[Coroutine[None, None, None]]:
        """Return the coroutines that run in parallel during the whole term."""
        run, swept = self.control.run(), keep_swept(self.control, about)
        return [
            run,
            self.control.diagnoses.run(),
            self.log_quota.run(),
            self.forecasts.run(),
            self.recorder.run(),
            self.alerting.run(),
            self.gateway.run(),
            self.batches(),
            self.look_after(),
            swept,
        ]


@dataclass(slots=True)
class RollCall:
    """Record of when this head, by its own clock, last saw a sign of life of each head."""

    _seen: dict[str, tuple[HeadSeen, float]] = field(default_factory=dict)

    def look(self, found: Sequence[HeadSeen], now: float) -> None:
        known_heads = self._seen
        self._seen = {
            head_seen.name: known_heads[head_seen.name]
            if known_heads.get(head_seen.name, (None,))[0] == head_seen
            else (head_seen, now)
            for head_seen in found
        }

    def heads(self, leader: str, now: float) -> list[HeadNow]:
        """Return all heads in the order in which agents try them: the leader, heads
        that were seen lately, and heads that were silent for longer."""
        rows = [
            HeadNow(
                name=head_seen.name,
                url=head_seen.url,
                leads=head_seen.name == leader,
                silent_seconds=now - seen_at,
            )
            for head_seen, seen_at in self._seen.values()
        ]
        return sorted(
            rows,
            key=lambda one: (
                not one.leads,
                one.silent_seconds >= THERE_SECONDS,
                one.name,
            ),
        )


@dataclass(slots=True, kw_only=True)
class Turns:
    """Alternation of this head between leading and standing by.

    `alone`: no other head uses the store. `build` creates the parts that a term needs;
    `front` is the application that serves the head's port.
    """

    store: Store
    clock: Clock
    about: ApiSettings
    front: Front
    channels: Channels
    build: Callable[[], LeaderTerm]
    name: str
    alone: bool
    term: LeaderTerm | None = None
    syslog: AuditSyslog | None = None
    ready: asyncio.Event = field(default_factory=asyncio.Event)
    roll: RollCall = field(default_factory=RollCall)
    # the address of the leader that it is a door to
    _door: tuple[str | None] | None = None
    _forwarder: Forwarder | None = None
    _closing: set["asyncio.Future[None]"] = field(default_factory=set)

    async def run(self) -> None:
        """Lead and stand by in turn, without end.

        Raises: TermLost if this head is alone: another process then writes to the file
        of its store.
        """
        while True:
            known_number = None if self.alone else await self._stand_by()
            try:
                await self._run_as_leader(known_number)
            except (TermLost, Trouble) as lost:
                if self.alone:
                    raise
                log.warning("leads_not", why=lost.message)
                await asyncio.sleep(LOOK_SECONDS)
            finally:
                self._end_term()

    async def say_goodbye(self) -> None:
        """Tell the agents of the other heads, because this head ends. A head that has
        joined only now may be unknown to them, and they could not find it alone."""
        if self.alone or self.term is None:
            return
        try:
            self.roll.look(await self.store.heads(), self.clock.monotonic())
        except Trouble as error:
            log.warning("heads_not_read", error=error.message)
        others = tuple(head.url for head in self.heads() if head.name != self.name)
        if others:
            await self.channels.announce_heads(others, self.clock.wall())

    async def leave(self) -> None:
        """Step down, because this head ends, so that another head can lead at once."""
        if self.alone:
            return
        try:
            if self.term is not None:
                await self.store.step_down(self.term.control.world.term)
            await self.store.leave(name=self.name)
        except Trouble as error:
            log.warning("not_left", error=error.message)

    # -- what the engine says, to whoever leads --------------------------------------------------

    def hear(self, word: NodeFacts) -> None:
        if self.term is not None:
            self.term.control.hear(word)

    def wake(self) -> None:
        if self.term is not None:
            self.term.control.wake()

    def serving_seconds(self) -> float:
        return 0.0 if self.term is None else self.term.control.serving_seconds()

    def waiting(self) -> list[Shape]:
        """Return the first shape of each queued job; an empty list while this head does
        not lead."""
        jobs = () if self.term is None else self.term.control.world.jobs.values()
        return [job.spec.shapes[0] for job in jobs if job.state == JobState.QUEUED]

    def queues(self, job: JobId) -> Sequence[QueueName]:
        """Return the job's queue and its parent queues, the nearest first; empty if the
        job is unknown or this head does not lead."""
        world = None if self.term is None else self.term.control.world
        found_job = None if world is None else world.jobs.get(job)
        if world is None or found_job is None:
            return ()
        return [
            queue.name for queue in reversed(world.queues.path(found_job.spec.queue))
        ]

    def cluster(self) -> ClusterId:
        """Return the id of the cluster. Raises: NoLeader while this head does not lead."""
        if self.term is None:
            raise NoLeader(
                "this head is not the leader",
                hint="run: corral status, which shows the head that leads",
            )
        return self.term.control.world.cluster

    @property
    def lent(self) -> LivingEngine | None:
        """Return the other engine that works for this head while it leads; else None."""
        return None if self.term is None else self.term.lent

    def has_jobs(self) -> bool | None:
        """Return whether unfinished jobs exist; None on a standby."""
        return None if self.term is None else bool(self.term.control.world.jobs)

    def heads(self) -> list[HeadNow]:
        """Return all heads that use the store; an empty list if this head is alone."""
        return [] if self.alone else self.roll.heads(self.name, self.clock.monotonic())

    # -- leading ---------------------------------------------------------------------------------

    async def _run_as_leader(self, known: int | None) -> None:
        """Lead until another head leads. `known`: the term before. Raises: TermLost,
        Trouble."""
        term = self.build()
        await term.control.start(known=known)
        search_rarely()
        self.term = term
        self._turn(term.app)
        self.ready.set()
        beside = [] if self.alone else [self._renew_leadership(term.control)]
        beside += [] if self.syslog is None else [self.syslog.run()]
        await first_of(*term.ways(self.about), *beside)

    async def _renew_leadership(self, control: Control) -> None:
        """Renew the leadership of this head in the store each second. Raises: TermLost
        if another head leads."""
        while True:
            led = control.world.term
            try:
                await self.store.keep_leading(led, name=self.name, url=self.about.url)
                await self._call_the_roll()
            except TermLost:
                # it may have raised its own term meanwhile
                if control.world.term == led:
                    raise
            except Trouble as error:
                log.warning("no_beat", error=error.message)
            await asyncio.sleep(BEAT_SECONDS)

    async def _call_the_roll(self) -> None:
        self.roll.look(await self.store.heads(), self.clock.monotonic())
        head_nows = self.heads()
        self.channels.heads = tuple(head.url for head in head_nows)
        for head_now in head_nows:
            if head_now.silent_seconds > FORGET_SECONDS:
                await self.store.leave(name=head_now.name)

    def _end_term(self) -> None:
        if self.term is not None:
            if self.term.lent is not None:
                self.term.lent.close()
            self.term = None
            self.channels.forget()
            self._forward_to_leader(None)

    # -- standing by -----------------------------------------------------------------------------

    async def _stand_by(self) -> int:
        """Wait until this head may lead. Return the term number of the leader that it
        replaces."""
        beating = asyncio.create_task(self._be_there())
        try:
            return await self._wait_for_leadership()
        finally:
            beating.cancel()
            await asyncio.gather(beating, return_exceptions=True)

    async def _wait_for_leadership(self) -> int:
        watch: Watch | None = None
        while True:
            try:
                leader = await self.store.leader()
                now = self.clock.monotonic()
                watch = (watch or Watch(me=self.name, leader=leader, since=now)).look(
                    leader, now
                )
                if watch.may_lead(now):
                    log.info("takes_over", of=leader.name, term=leader.term)
                    return leader.term
                self._forward_to_leader(leader.url or None)
            except Trouble as error:
                log.warning("leader_not_seen", error=error.message)
                watch = watch and watch.blind(self.clock.monotonic())
            await asyncio.sleep(LOOK_SECONDS)

    async def _be_there(self) -> None:
        while True:
            try:
                await self.store.be_there(name=self.name, url=self.about.url)
            except Trouble as error:
                log.warning("no_beat", error=error.message)
            await asyncio.sleep(BEAT_SECONDS)

    def _forward_to_leader(self, url: str | None) -> None:
        """Forward requests to the head at `url`; None if no head leads at the moment."""
        if self._door == (url,):
            return
        forwarder = (
            Forwarder(url, self._trusted(), self.about.seals)
            if url is not None
            else None
        )
        self._turn(
            Standby(
                store=self.store,
                clock=self.clock,
                settings=self.about,
                forwarder=forwarder,
            )
        )
        self._door, self._forwarder = (url,), forwarder
        self.ready.set()
        log.info("stands_by", leader=url)

    def _turn(self, app: ASGIApp) -> None:
        self.front.turn(app)
        if self._forwarder is not None:
            closing = asyncio.ensure_future(self._forwarder.close())
            self._closing.add(closing)
            closing.add_done_callback(self._closing.discard)
        self._door, self._forwarder = None, None

    def _trusted(self) -> ssl.SSLContext | None:
        """Return a TLS context that verifies other heads by the machine's certificates
        and the one that verifies this head; None without TLS."""
        if not self.about.url.startswith("https"):
            return None
        context = ssl.create_default_context()
        if pem := self.about.trusted():
            context.load_verify_locations(cadata=pem)
        return context
