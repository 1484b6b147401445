"""An agent that follows the rules of docs/architecture/overview.md: it obeys the newest
desired state and reports all it observes."""

import asyncio
from collections.abc import Iterator
from dataclasses import replace

from corral.domain.desired_state import DesiredState, Launch, Stop, Version
from corral.domain.observed_state import AttemptKey, Phase, Seen
from corral.simulate.disk import SELF_STOP, SimulatedJournal
from corral.simulate.head import AgentSession
from corral.simulate.heads import SimulatedHeads
from corral.simulate.machine import SimulatedMachine
from corral.simulate.shims import Shims
from corral.simulate.virtual_loop import SimulatedProcess
from corral.simulate.world import Stage

BEAT_SECONDS = 1.0
GATHER_SECONDS = 0.005
UNHEARD_SECONDS = 5.0
LEASE_SECONDS = 1.0
LEASE_MARGIN_SECONDS = 1.5
FIRST_PROBE_SECONDS = 1.0


class SimulatedAgent:
    """One run of a node's agent, from its start to its end. State that must survive the
    agent is on the node's disk."""

    def __init__(
        self,
        stage: Stage,
        machine: SimulatedMachine,
        shims: Shims,
        heads: SimulatedHeads,
    ) -> None:
        self._stage = stage
        self._machine = machine
        self._shims = shims
        self._heads = heads
        self.node = machine.id
        self.boot = machine.boot
        self.process = SimulatedProcess(stage.loop, f"{machine.id}/agent")
        self.session: AgentSession | None = None
        self.version: Version | None = None  # of the newest word obeyed in this life
        self.preparing: dict[AttemptKey, asyncio.Handle] = {}
        self._launches: dict[AttemptKey, Launch] = {}
        self._number = 0
        self._unheard_since = 0.0
        self._sent_at: dict[int, float] = {}
        self._told = False
        self._began_at = stage.now()

    def begin(self) -> None:
        for key, journal in self._machine.disk.journals.items():
            if journal.launch is not None:
                self._launches[key] = journal.launch
        self._enforce_lease()
        self._run_heartbeat()

    # -- the talk with the head ------------------------------------------------------------------

    def _connect_to_head(self) -> None:
        head = self._heads.to_dial()
        if head is None or not self._stage.network.reaches(self.node):
            return
        self.session = head.session_for(self)
        self._unheard_since = self._stage.now()
        self._sent_at.clear()
        self._number = 0

    def hang_up(self) -> None:
        """Close the connection to the head, which notices that."""
        session, self.session = self.session, None
        if session is not None:
            session.closed_by_agent()

    def closed(self, session: AgentSession) -> None:
        if self.session is session:
            self.session = None

    def wake(self) -> None:
        """Send a report to the head soon. Changes within GATHER_SECONDS are reported
        together."""
        if not self._told:
            self._told = True
            self.process.after(GATHER_SECONDS, self._say)

    def _run_heartbeat(self) -> None:
        if self.session is not None and (
            self._stage.now() - self._unheard_since >= UNHEARD_SECONDS
            or not self.session.head.process.alive
        ):
            self.hang_up()
        if self.session is None:
            self._connect_to_head()
        self._say()
        self.process.after(BEAT_SECONDS, self._run_heartbeat)

    def _say(self) -> None:
        self._told = False
        if self.session is None:
            return
        self._number += 1
        self._sent_at[self._number] = self._stage.now()
        signals = tuple(self._machine.disk.signals)
        self.session.beat(self._number, self.version, self.seen(), signals)

    def heard(self, session: AgentSession, number: int) -> None:
        """Note that the head has recorded the heartbeat of this number."""
        if session is not self.session:
            return
        self._unheard_since = self._stage.now()
        sent_at = self._sent_at.pop(number, None)
        if sent_at is not None:
            disk = self._machine.disk
            disk.heard_at = max(disk.heard_at, sent_at)

    def seen(self) -> tuple[Seen, ...]:
        journals = self._machine.disk.journals
        seens = [self._seen_of(journal) for journal in journals.values()]
        early = [Seen(key=key, phase=Phase.STARTING) for key in self.preparing]
        return (*seens, *early)

    def _seen_of(self, journal: SimulatedJournal) -> Seen:
        """Return the report of one attempt, with the result of the probe if it is a
        replica's first node. A new agent has no result at once."""
        wall = self._machine.wall()
        seen = journal.seen(self.boot, wall)
        launch = journal.launch
        if launch is None or launch.replica is None or launch.node_rank != 0:
            return seen
        if self._stage.now() - self._began_at < FIRST_PROBE_SECONDS:
            return seen
        if journal.started_at is None:
            return replace(seen, is_ready=False)
        ends = [rank_exit.at for _, rank_exit in seen.exits]
        died_at = max(ends) if len(ends) == launch.ranks else None
        probe = self._stage.probes[launch.job_name]
        is_ready = journal.boot == self.boot and probe.answers(
            (wall if died_at is None else died_at) - journal.started_at,
            None if died_at is None else wall - died_at,
        )
        probe_text = "" if is_ready else "connection refused"
        return replace(
            seen,
            is_ready=is_ready,
            probe_text=probe_text,
            is_asleep=self._stage.engines.is_asleep(seen.key),
        )

    # -- obedience -------------------------------------------------------------------------------

    def told(self, session: AgentSession, wanted: DesiredState) -> None:
        """Receive a desired state from the head. It is ignored if the connection
        `session` has been closed by now."""
        if session is self.session:
            self.wanted(wanted)

    def wanted(self, wanted: DesiredState) -> None:
        """Apply the desired state of the head, unless it is older than the newest one
        that this node knows."""
        if not self.may_obey(wanted):
            return
        disk = self._machine.disk
        disk.cluster, disk.version = wanted.cluster, wanted.version
        self.version = wanted.version
        self.obey(wanted)
        self.wake()

    def may_obey(self, wanted: DesiredState) -> bool:
        disk = self._machine.disk
        if wanted.boot not in ("", self.boot):
            return False
        if disk.version is None:
            return True
        return wanted.cluster == disk.cluster and wanted.version >= disk.version

    def obey(self, wanted: DesiredState) -> None:
        present = self._machine.disk.journals.keys() | self.preparing.keys()
        stops = {stop.key for stop in wanted.stop}
        for launch in wanted.run:
            if launch.key not in present and launch.key not in stops:
                self._prepare_launch(launch)
            is_to_sleep = launch.key in wanted.asleep
            self._stage.engines.order(launch, self.node, asleep=is_to_sleep)
        for stop in wanted.stop:
            self._stop(stop)
        for key, steps in wanted.committed:
            if key in self._machine.disk.journals:
                self._machine.disk.journals[key].kept.update(steps)
        for notice in wanted.notices:
            if notice.key in self._shims.parts:
                self._shims.parts[notice.key].warn(notice)
        for key in wanted.settled:
            self._shims.settle(key)
            self._launches.pop(key, None)

    def _prepare_launch(self, launch: Launch) -> None:
        seconds = self._stage.lives[launch.job_name].prepare_seconds
        self._launches[launch.key] = launch
        self.preparing[launch.key] = self.process.after(
            seconds, self._start_launch, launch
        )

    def _start_launch(self, launch: Launch) -> None:
        if self.preparing.pop(launch.key, None) is None:
            return  # stopped meanwhile
        self._shims.launch(launch)
        self.wake()

    def _stop(self, stop: Stop) -> None:
        journals = self._machine.disk.journals
        if stop.key in self.preparing:
            self.preparing.pop(stop.key).cancel()
            why = "the attempt was stopped before it started"
            self._shims.refuse(stop.key, why, infra=False)
        elif stop.key not in journals:
            self._shims.refuse(stop.key, "the attempt is not on this node", infra=True)
        elif stop.key in self._shims.parts:
            self._shims.parts[stop.key].stop(stop)

    # -- of itself -------------------------------------------------------------------------------

    def _enforce_lease(self) -> None:
        """End attempts that have lost their shim, and stop attempts whose own limit for
        a silent head is reached. Repeat this regularly."""
        self._shims.find_lost()
        for stop in self._overdue_stops():
            if stop.key in self._shims.parts:
                self._shims.parts[stop.key].stop(stop)
        self.process.after(LEASE_SECONDS, self._enforce_lease)

    def _overdue_stops(self) -> Iterator[Stop]:
        silent_seconds = self._stage.now() - self._machine.disk.heard_at
        for launch in self._launches.values():
            limit = launch.self_stop_seconds
            if limit is None:
                continue
            grace = min(launch.grace_seconds, limit / 2)
            if silent_seconds >= limit - grace - LEASE_MARGIN_SECONDS:
                yield Stop(
                    key=launch.key, grace_seconds=grace, save=True, why=SELF_STOP
                )
