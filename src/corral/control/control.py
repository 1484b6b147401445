"""The control loop: observe, reconcile, commit, apply. The head makes all its decisions
in this loop."""

import asyncio
from collections.abc import Callable, Iterable, Mapping
from collections.abc import Sequence as Seq
from contextlib import suppress
from dataclasses import replace
from functools import partial

from corral.control import observed as words
from corral.control.counters import HeadCounters
from corral.control.desired_versions import Book
from corral.control.diagnoses import Diagnoses
from corral.control.dropped_data import DroppedData
from corral.control.event_hub import Hub
from corral.control.gpu_usage import GpuUsage
from corral.control.head_clocks import ServingClock, SteadyWall
from corral.control.job_reasons import reason_held
from corral.control.latest_samples import Sensed
from corral.control.node_warnings import node_warnings
from corral.control.poison_rows import Decided, decided
from corral.control.request_checks import Planned, accepted, check_asked, plan
from corral.control.request_waiters import Granted
from corral.control.retention import Keeping
from corral.control.runtime_learning import learned_of
from corral.control.scale_up import awaited
from corral.control.services import PublishedRoutes, ServiceTraffic
from corral.domain.cluster_warning import ClusterWarning, WarningCode
from corral.domain.desired_state import DesiredState
from corral.domain.errors import Bug, InvariantBroken, StoreTrouble, TermLost, Trouble
from corral.domain.ids import JobId, NodeId, UserName
from corral.domain.job import Job, JobSpec
from corral.domain.observed_state import Facts, NodeFacts, Progress
from corral.domain.requests import Asked, StoredRequest, Submit
from corral.domain.retention import Retention
from corral.domain.users import THE_HEAD, Speaker
from corral.domain.world import Changes, Event, World
from corral.health.health_rules import HealthRules
from corral.ports.clock import Clock
from corral.ports.engine import Engine, Placer
from corral.ports.log import HeadLogger
from corral.ports.log_reader import LogReader
from corral.ports.store import Store
from corral.reconcile import Now, PassOutcome, reconcile
from corral.reconcile.apply_requests import ids_of
from corral.reconcile.cache.pass_cache import Memo
from corral.reconcile.external_placement import candidates_of
from corral.schedule.waiting import Reason

log = HeadLogger("corral.control")

LOOK_AT_ALL_SECONDS = 1.0
# Interval at which an idle head makes an empty commit, to check that it still leads.
LOOK_AT_TERM_SECONDS = 5.0
RETRY_STORE_SECONDS = 0.5

KeepReplay = Callable[[str, str], None]


class Control:
    """The control loop of one head: it decides which jobs run where, and commits each
    decision. All of it runs in one asyncio thread; only the store runs in another.

    `world` and `facts` may be read at any time between two awaits. Only this class
    changes them.
    """

    def __init__(
        self,
        *,
        store: Store,
        engine: Engine,
        clock: Clock,
        placer: Placer | None = None,
        reader: LogReader | None = None,
        keep_replay: KeepReplay | None = None,
        retention: Retention = Retention(),  # noqa: B008 - frozen
        health: HealthRules = HealthRules(),  # noqa: B008 - frozen
    ) -> None:
        self.keeping = Keeping(retention)
        self.store = store
        self.engine = engine
        self.placer = placer
        self.clock, self.health = clock, health
        self.hub, self.counts = Hub(), HeadCounters()
        self.sensed = Sensed(lambda: self.world)
        self.ledger, self.dropped = GpuUsage(), DroppedData()
        self.traffic, self.routes = ServiceTraffic(), PublishedRoutes()
        self.sensed.listen(lambda *heard: self.ledger.take(self.world, *heard))
        self.diagnoses = Diagnoses(reader, clock, done=self.wake)
        self.facts = Facts(
            idle=self.ledger.idle,
            diagnoses=self.diagnoses.known,
            restarts_in_place=engine.restarts_in_place,
        )
        self.reasons: Mapping[JobId, Reason] = {}
        self.stopped_placing, self.failed_placing, self.trouble = "", "", ""
        self._keep_replay = keep_replay
        self._serving = ServingClock(clock.monotonic())
        self._wall = SteadyWall(clock)
        self._world: World | None = None
        self._must_load = False
        self._book = Book()
        self._memo = Memo()
        self._touched: set[JobId] = set()
        self._requests_waiting = True
        self._wake = asyncio.Event()
        self._granted = Granted()
        self._looked_at_all = float("-inf")
        self._wrote_at = 0.0
        self._ticked_at = 0.0

    @property
    def world(self) -> World:
        if self._world is None:
            raise StoreTrouble(
                "the head is starting and has not loaded its data yet",
                hint="try again in a few seconds",
            )
        return self._world

    def serving_seconds(self) -> float:
        """The seconds of the head's serving clock, which stops while the head does not
        serve."""
        return self._serving.read(self.clock.monotonic())

    # -- what comes in ---------------------------------------------------------------------------

    async def submit(
        self,
        specs: Seq[JobSpec],
        *,
        key: str,
        by: UserName,
        speaker: Speaker = THE_HEAD,
        held: bool = False,
    ) -> list[Job]:
        """Queue the jobs, either all or none, and return them. A repeated call with the
        same key returns the jobs of the first call. `held`: suspend the jobs in the
        same transaction."""
        job_specs = accepted(self.world, specs, self.engine, self._wall.read())
        with self.keeping.sparing(job_specs):
            submission = Submit(specs=job_specs, key=key, held=held)
            request = await self.acknowledge(submission, by=by, speaker=speaker)
            return await self._jobs_of(request)

    async def submitted(self, key: str, *, by: UserName) -> list[Job] | None:
        """Return the jobs that this user has submitted with this key; None if there was
        no such request.

        It is called before a submission is checked: a repeated submission must get the
        same answer even if the cluster has changed.
        """
        request = await self.store.request_of_key(key, by=by) if key else None
        return None if request is None else await self._jobs_of(request)

    async def _jobs_of(self, request: StoredRequest) -> list[Job]:
        """Return the jobs of a granted request.

        Raises: Forgotten if the request is a repeated one and its jobs are no longer
        stored.
        """
        repeated, forgotten = (
            request.sequence <= self.world.granted,
            self.keeping.forgotten,
        )
        await self._granted.wait(self.world, request)
        jobs = [
            self.world.jobs.get(id) or await self.store.job(id)
            for id in ids_of(request)
        ]
        if None in jobs and (repeated or self.keeping.forgotten > forgotten):
            raise self.keeping.retention.refusal("the submission with this key")
        if None in jobs:
            raise Bug(
                f"request {request.sequence} could not be carried out: its jobs are missing",
                hint="run: corral events",
            )
        return [job for job in jobs if job is not None]

    async def ask(
        self, asked: Asked, *, by: UserName, speaker: Speaker = THE_HEAD
    ) -> StoredRequest:
        """Process a user's request about a job or a node: check it, store it, and wait
        until a tick has granted it. Return the stored request."""
        check_asked(self.world, asked, self.now())
        request = await self.acknowledge(asked, by=by, speaker=speaker)
        await self._granted.wait(self.world, request)
        return request

    async def acknowledge(
        self, asked: Asked, *, by: UserName, speaker: Speaker = THE_HEAD
    ) -> StoredRequest:
        """Store the request durably, without waiting until it is granted. From then on
        it will be granted, even if the head dies."""
        request = await self.store.add_request(
            asked, by=by, at=self._wall.read(), speaker=speaker
        )
        self._requests_waiting = True
        self._wake.set()
        return request

    def dry_run(self, specs: Seq[JobSpec], *, by: UserName) -> list[Planned]:
        """Return for each job its placement, or why it would wait, if it were submitted
        now.

        Raises: the same refusals as `submit`.
        """
        job_specs = accepted(self.world, specs, self.engine, self._wall.read())
        return plan(
            self.world, self.facts, job_specs, self.now(), self.learning.table, by=by
        )

    def hear(self, heard: NodeFacts) -> None:
        """Store an agent's complete report; wake the loop if it has news."""
        touched = words.take_word(self.facts, heard)
        if touched is not None:
            self._touched |= touched
            self._wake.set()

    def left(self, node: NodeId) -> None:
        """Handle the closed channel of a node's agent: the loop runs at once and
        queries the engine whether the node is dead."""
        log.info("agent_left", node=node)
        self.facts.unheard.pop(node, None)
        self._wake.set()

    def wake(self, *jobs: JobId) -> None:
        """Run the loop at once, because something outside of the head has changed.
        `jobs` are the jobs that the change may concern."""
        self._touched.update(jobs)
        self._wake.set()

    # -- what is known ---------------------------------------------------------------------------

    def wanted(self, node: NodeId) -> DesiredState:
        """Return the newest desired state for the agent of the node."""
        return self._book.newest(self.world, node, self.facts.nodes.get(node))

    def reason(self, job: Job) -> Reason:
        """Return the reason of a job's state. For a queued job, it is the reason from
        the last scheduling pass, if that pass considered the job."""
        wait_reason = self.reasons.get(job.id) if job.state == "QUEUED" else None
        wait_reason = awaited(self.world, job, wait_reason, self.engine.could_bring)
        stopped = self.stopped_placing or self.failed_placing
        engine_reason = self.engine.says((job.id, job.attempt))
        return wait_reason or reason_held(
            self.world, job, self.now(), self.facts, stopped=stopped, said=engine_reason
        )

    def progress(self, job: Job) -> Progress | None:
        """Return the newest progress report of the training loop in the job's newest
        attempt."""
        return words.progress_of(self.world, self.facts, job)

    def warnings(self) -> list[ClusterWarning]:
        """Return warnings for operators."""
        is_unreachable = self.engine.is_unreachable
        text_by_code = {
            WarningCode.PLACING_STOPPED: self.stopped_placing,
            WarningCode.PLACING_FAILED: self.failed_placing,
            WarningCode.PASS_FAILED: self.trouble,
            WarningCode.ENGINE_UNREACHABLE
            if is_unreachable
            else WarningCode.ENGINE: self.engine.trouble,
        }
        return [
            *(
                ClusterWarning(code=code, text=warning_text)
                for code, warning_text in text_by_code.items()
                if warning_text
            ),
            *node_warnings(self.world.nodes.values()),
            *self.dropped.warnings(self.now().wall),
        ]

    # -- the loop --------------------------------------------------------------------------------

    async def start(self, *, known: int | None = None) -> None:
        """Become the leader: raise the term and load the world.

        Args:
            known: term of the leader that is replaced.

        Raises: TermLost if another head has become the leader since; this head must
        then not take over again.
        """
        # it serves from here on, and not while the store kept it waiting
        if self._world is None:
            self._serving = ServingClock(self.clock.monotonic())
        known = known if self._world is None else self._world.term
        self._world = await self.store.lead(known=known)
        self._must_load = False
        self._book = Book()
        self._memo = Memo()
        self.learning = await learned_of(self.store, self._world, self.now())
        self._requests_waiting = True
        self._looked_at_all = float("-inf")
        log.info("leading", term=self._world.term, jobs=len(self._world.jobs))

    async def run(self) -> None:
        """Run ticks forever. The next tick starts at once if something has changed,
        else at the time at which a time limit may be reached."""
        while True:
            nap = RETRY_STORE_SECONDS
            try:
                nap = await self.tick()
            except TermLost:
                raise
            except Trouble as error:
                await self._reload_world(error.message)
            except Exception as error:
                # a fault of ours must not end the head: cancels go on
                log.exception("tick_failed")
                self._save_replay("tick", (), error)
                await self._reload_world(f"a bug in Corral: {error!r}")
            with suppress(TimeoutError):
                async with asyncio.timeout(nap):
                    await self._wake.wait()

    async def tick(self) -> float:
        """Run one pass of the loop: observe, reconcile, commit, apply. Return the
        seconds until the next pass."""
        self._wake.clear()
        if self._must_load:
            await self.start()
        self._serving.beat(self.clock.monotonic())
        self._observe_engine()
        requests = await self._new_requests()
        now = self.now()
        touched = self._take_touched(now.serving)
        self.traffic.observe(self.world, self.facts.services, now)
        news = self.ledger.news(self.world, self.facts, now)
        news = self.traffic.with_tokens(news, self.world, now)
        news = replace(news, events=(*news.events, *self.dropped.take_events()))
        outcome, changes, events = await self._decide_and_commit(
            requests, now, touched, news
        )
        words.excuse(self.facts, outcome.frozen, now.serving - self._ticked_at)
        self._ticked_at = now.serving
        self.reasons = self.reasons if outcome.reasons is None else outcome.reasons
        if events is not None:
            self.counts.take_in(self.world, changes)
            self.learning.take_in(self.world, changes, now)
            self.keeping.left(changes)
            self.traffic.committed(self.world, changes)
            words.take_back(self.facts, self.sensed, changes)
            self._wrote_at = now.serving
            self.hub.publish(events)
        if touched is None:  # once a second: remove what is over, and outdated samples
            words.forget_steps(self.facts, self.world)
            self.sensed.age(self.clock.wall())
            self.diagnoses.forget(self.world)
        self.diagnoses.ask(outcome.unread, self.world)
        self._granted.announce(self.world)
        self._push_desired_state(changes, touched)
        self.trouble = ""
        self.counts.ticks.add(self.serving_seconds() - now.serving)
        return outcome.nap_seconds

    async def _decide_and_commit(
        self,
        requests: Seq[StoredRequest],
        now: Now,
        touched: Iterable[JobId] | None,
        news: Changes,
    ) -> Decided:
        """Reconcile, and commit the result together with `news`. A commit also takes
        place without changes if the term must be checked.

        If the store cannot record a row, decide again without this row.
        """
        is_due = now.serving - self._wrote_at >= LOOK_AT_TERM_SECONDS

        def reconciled(anew: bool) -> PassOutcome:
            self._memo = Memo() if anew else self._memo
            return self._reconcile(requests, now, None if anew else touched)

        async def commit(changes: Changes) -> Seq[Event] | None:
            if not changes and not is_due:
                return None
            self.keeping.leaving(changes)
            return await self.store.commit(self.world.term, changes)

        return await decided(reconciled, commit, news, self.facts)

    def _observe_engine(self) -> None:
        """Query the engine for dead or removed nodes, and for its placements if it
        places jobs."""
        words.take_engine(
            self.facts, self.world, self.engine.observe(), self.engine.gone()
        )
        if self.placer is not None:
            self.facts = replace(self.facts, placing=self.placer.placing())

    def _reconcile(
        self, requests: Seq[StoredRequest], now: Now, touched: Iterable[JobId] | None
    ) -> PassOutcome:
        decide = partial(
            reconcile,
            self.world,
            self.facts,
            requests,
            now,
            touched=touched,
            keep=self.keeping.due(now.serving) if touched is None else None,
            spared=self.keeping.spared,
            memo=self._memo,
            learned=self.learning.table,
            health=self.health,
        )
        try:
            outcome = decide(placing=not self.stopped_placing)
        except InvariantBroken as error:
            self.stopped_placing = (
                f"no jobs are placed any more, cancels still work: {error.message}"
            )
            log.error("placement_stopped", error=error.message)
            self._save_replay("placement", requests, error)
            outcome = decide(placing=False)
        except Exception as error:
            # tried again at the next tick; what is not placing goes on
            outcome = decide(placing=False)
            self.failed_placing = (
                f"the last scheduling pass failed and is tried again: {error!r}"
            )
            log.exception("placement_failed")
            self._save_replay("placement", requests, error)
        else:
            self.failed_placing = ""
        for job, bug in outcome.bugs:
            log.error("bug_in_one_job", job=job, error=repr(bug))
            self._save_replay(job, requests, bug)
        return outcome

    def _save_replay(
        self, name: str, requests: Seq[StoredRequest], error: Exception
    ) -> None:
        """Store the input of a failed decision, so that the decision can be replayed."""
        if self._keep_replay is not None:
            replay_values = (error, self.now(), requests, self.facts, self.world)
            self._keep_replay(name, "\n".join(map(repr, replay_values)))

    async def _new_requests(self) -> Seq[StoredRequest]:
        if not self._requests_waiting:
            return ()
        self._requests_waiting = False
        try:
            return await self.store.requests_after(self.world.granted)
        except Trouble:
            self._requests_waiting = True
            raise

    def _take_touched(self, serving: float) -> set[JobId] | None:
        """Return the jobs that have changed since the last tick. Once a second return
        None instead, which means that every job must be considered."""
        touched, self._touched = self._touched, set()
        if serving - self._looked_at_all >= LOOK_AT_ALL_SECONDS:
            # another head may take some
            self._looked_at_all, self._requests_waiting = serving, True
            return None
        return touched

    def _push_desired_state(self, changes: Changes, touched: set[JobId] | None) -> None:
        """Send each changed desired state to the engine."""
        self._book.index(self.world, changes)
        nodes = self._book.concerned(changes, touched or ())
        if touched is None:
            nodes |= self.world.nodes.keys()
        for node in sorted(nodes):
            desired_state = self._book.renewed(
                self.world, node, self.facts.nodes.get(node)
            )
            if desired_state is not None:
                self.engine.apply(desired_state)
        if self.placer is not None and (
            touched is None or changes.jobs or changes.nodes
        ):
            self.placer.offer(candidates_of(self.world))

    async def _reload_world(self, why: str) -> None:
        """Discard the world in memory after a failed tick, and load it again from the
        store."""
        self.trouble = f"the last pass of the head failed and is tried again: {why}"
        log.warning("tick_failed", why=why)
        # what was last committed is unknown: nothing is decided before
        self._must_load = True
        try:
            await self.start()
        except TermLost:
            raise
        except Trouble as again:
            log.warning("store_trouble", error=again.message)
        self.hub.lost()

    def now(self) -> Now:
        """Return the current time on the head's two clocks."""
        return Now(wall=self._wall.read(), serving=self.serving_seconds())
