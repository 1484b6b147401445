"""A service in any order of requests, measurements, ends and faults: what holds after
each pass, and where it ends up when nothing happens any more."""

from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from corral.domain.attempt import Exit
from corral.domain.ids import JobId, NodeId
from corral.domain.job_states import JobState
from corral.domain.observed_state import Phase
from corral.domain.requests import (
    ApplyService,
    Asked,
    Cancel,
    Requeue,
    RollBackService,
    ScaleService,
    SetNode,
    StopService,
    Suspend,
)
from corral.domain.service import CanaryRule, ReplicaRow, Service
from corral.domain.service_facts import ServiceFacts
from corral.domain.world import World
from corral.reconcile.await_node_faults import SETTLES_SECONDS
from corral.store import row_codec
from tests.reconcile.serving import CHAT, service_spec
from tests.worlds import Cluster, node

NODES = ("n1", "n2", "n3")
MOST = 4
RANGES = st.tuples(st.integers(0, MOST), st.integers(0, MOST)).map(sorted)


class ServiceLife(RuleBasedStateMachine):
    """Each rule is one thing that happens, followed by a pass of the control loop."""

    def __init__(self) -> None:
        super().__init__()
        self.cluster = Cluster(*(node(name) for name in NODES))
        self.seen_numbers: dict[JobId, int] = {}
        self.lost: set[str] = set()
        self.before: Service | None = None
        self.apply("serve v1", 60.0, [1, 3])
        self.all_ready()

    # -- what people ask ---------------------------------------------------------------

    def ask(self, asked: Asked) -> None:
        self.before = self.service
        self.cluster.request(asked)
        self.follow()

    @rule(
        run=st.sampled_from(["serve v1", "serve v2", "serve v3"]),
        canary=st.sampled_from([0.0, 60.0, 600.0]),
        span=RANGES,
    )
    def apply(self, run: str, canary: float, span: list[int]) -> None:
        spec = service_spec(
            run,
            min_replicas=span[0],
            max_replicas=span[1],
            canary=CanaryRule(seconds=canary),
        )
        self.ask(ApplyService(spec=spec, key_seed="5eed"))

    @rule(span=RANGES)
    def scale(self, span: list[int]) -> None:
        least, most = span
        self.ask(ScaleService(service=CHAT, min_replicas=least, max_replicas=most))

    @rule(revision=st.sampled_from([None, None, 1, 2]))
    def roll_back(self, revision: int | None) -> None:
        self.ask(RollBackService(service=CHAT, revision=revision))

    @rule(chance=st.integers(0, 5))
    def stop(self, chance: int) -> None:
        if chance == 0:
            self.ask(StopService(service=CHAT))

    @precondition(lambda self: self.rows)
    @rule(at=st.integers(0, 9), what=st.sampled_from([Cancel, Requeue, Suspend]))
    def change_job(self, at: int, what: type[Cancel]) -> None:
        self.ask(what(job=self.pick(at).job))

    @rule(name=st.sampled_from(NODES), to=st.sampled_from(["drain", "uncordon"]))
    def tend(self, name: str, to: Any) -> None:
        self.ask(SetNode(node=NodeId(name), to=to))

    # -- what is measured --------------------------------------------------------------

    @rule(
        wanted=st.one_of(st.none(), st.integers(0, MOST + 1)),
        verdict=st.sampled_from([None, None, True, False]),
        idle=st.booleans(),
    )
    def measure(self, wanted: int | None, verdict: bool | None, idle: bool) -> None:
        under_way = {row.job: 0 if idle else 3 for row in self.rows}
        self.cluster.facts.services[CHAT] = ServiceFacts(
            wanted=wanted, verdict=verdict, under_way=under_way
        )

    @rule()
    def forget_measurements(self) -> None:
        self.cluster.facts.services.clear()

    # -- what happens to replicas and nodes --------------------------------------------

    @precondition(lambda self: self.rows)
    @rule(at=st.integers(0, 9), is_ready=st.booleans())
    def probe(self, at: int, is_ready: bool) -> None:
        self.say_up(self.pick(at), is_ready=is_ready)
        self.tick()

    @rule()
    def all_ready(self) -> None:
        for row in self.rows:
            self.say_up(row, is_ready=True)
        self.tick()

    def say_up(self, row: ReplicaRow, *, is_ready: bool) -> None:
        job = self.world.jobs.get(row.job)
        if job is not None and job.state.is_live:
            self.cluster.say(row.job, Phase.UP, is_ready=is_ready)

    @precondition(lambda self: self.rows)
    @rule(at=st.integers(0, 9), code=st.sampled_from([0, 7]))
    def end(self, at: int, code: int) -> None:
        row = self.pick(at)
        job = self.world.jobs.get(row.job)
        if job is not None and job.state.is_on_nodes:
            self.say_ended(row.job, code)
        self.tick()

    def say_ended(self, job: JobId, code: int) -> None:
        exits = ((0, Exit(code=code, at=self.cluster.wall)),)
        self.cluster.say(job, Phase.ENDED, exits=exits)

    @rule()
    def leave(self) -> None:
        """The ranks of jobs that are not to run any more end."""
        for state in (JobState.STOPPING, JobState.RECOVERING):
            for id in list(self.world.in_state(state)):
                self.say_ended(id, 143)
        self.tick(SETTLES_SECONDS)

    @rule(name=st.sampled_from(NODES))
    def lose(self, name: str) -> None:
        if len(self.lost) < 2:
            self.lost.add(name)
            self.cluster.facts.proofs[NodeId(name)] = "its power is gone"
            self.cluster.mute.add(NodeId(name))
            self.cluster.seen.pop(NodeId(name), None)
        self.tick()

    @rule(name=st.sampled_from(NODES))
    def come_back(self, name: str) -> None:
        self.lost.discard(name)
        self.cluster.facts.proofs.pop(NodeId(name), None)
        self.cluster.mute.discard(NodeId(name))
        self.tick()

    # -- the head ----------------------------------------------------------------------

    @rule(seconds=st.sampled_from([0.5, 0.5, 2.0, 30.0, 61.0, 700.0]))
    def tick(self, seconds: float = 0.5) -> None:
        self.before = self.service
        self.cluster.tick(seconds=seconds)
        self.follow()

    @rule(step=st.sampled_from([-3600.0, 3600.0]))
    def set_clock(self, step: float) -> None:
        self.cluster.wall += step

    @rule()
    def restart(self) -> None:
        """A new head has what was committed, and no reports yet."""
        self.cluster.facts.nodes.clear()
        self.cluster.facts.services.clear()

    def follow(self) -> None:
        outcome = self.cluster.outcome
        assert outcome is not None
        assert not outcome.bugs, outcome.bugs
        for service in outcome.changes.services:
            text, crc = row_codec.SERVICE.write(service)
            assert row_codec.SERVICE.read(text, crc) == service
        for job in outcome.changes.jobs:
            self.check_number(job.id)
        self.drained_only_what_may_be_missed()

    def check_number(self, id: JobId) -> None:
        if id not in self.seen_numbers:
            service, _, number = id.partition("_")
            used = [
                known
                for job, known in self.seen_numbers.items()
                if job.partition("_")[0] == service
            ]
            assert int(number) > max(used, default=0), f"{id} after {used}"
            self.seen_numbers[id] = int(number)

    def drained_only_what_may_be_missed(self) -> None:
        """A replacement of revisions takes a ready replica away only if enough are
        left, or one for the lack of room."""
        before, service = self.before, self.service
        if before is None or service is None or before.id != service.id:
            return
        known = {row.number: row for row in before.replicas}
        newly = [
            row
            for row in service.replicas
            if row.draining_at is not None
            and row.ready_at is not None
            and "replaces revision" in row.reason
            and row.number in known
            and known[row.number].draining_at is None
        ]
        ready = sum(
            row.is_ready and row.revision != service.on_trial
            for row in service.replicas
        )
        made_room = [row for row in newly if "no room" in row.reason]
        if made_room:
            assert len(newly) == 1
            assert not any(row.draining_at for row in before.replicas)
        elif newly:
            assert ready >= service.wanted

    # -- what always holds -------------------------------------------------------------

    @property
    def world(self) -> World:
        return self.cluster.world

    @property
    def service(self) -> Service | None:
        return self.world.services.get(CHAT)

    @property
    def rows(self) -> tuple[ReplicaRow, ...]:
        return self.service.replicas if self.service is not None else ()

    def pick(self, at: int) -> ReplicaRow:
        return self.rows[at % len(self.rows)]

    @invariant()
    def each_unfinished_replica_has_its_row(self) -> None:
        with_row = {row.job for row in self.rows}
        unfinished = {
            job.id for job in self.world.jobs.values() if job.spec.replica is not None
        }
        assert unfinished == with_row

    @invariant()
    def there_is_at_most_one_replica_more_than_wanted(self) -> None:
        service = self.service
        if service is None:
            return
        live = [row for row in self.rows if row.draining_at is None]
        staying = [row for row in live if row.leaving_since is None]
        assert len(staying) <= service.wanted + 1
        assert service.wanted <= service.spec.max_replicas
        assert sum(row.revision == service.on_trial for row in staying) <= 1

    @invariant()
    def what_serves_or_is_tried_is_kept(self) -> None:
        if self.service is not None:
            self.service.spec_of(self.service.current)
            self.service.spec_of(self.service.goal)

    # -- when all calms down -----------------------------------------------------------

    def teardown(self) -> None:
        for name in NODES:
            self.come_back(name)
            self.tend(name, "uncordon")
        self.cluster.facts.services.clear()
        for _ in range(80):
            self.all_ready()
            self.leave()
            self.tick(30.0)
        service = self.service
        if service is None:
            assert not self.world.jobs
            return
        assert service.state == "ACTIVE"
        assert service.trial is None
        assert [row.revision for row in self.rows] == [service.current] * len(self.rows)
        self.check_settled(service)
        self.stop(0)
        for _ in range(5):
            self.tick(30.0)
            self.leave()
        assert self.service is None
        assert not self.world.jobs
        assert not self.world.allocations

    def check_settled(self, service: Service) -> None:
        assert service.ready_count == len(self.rows) == service.wanted
        assert service.spec.min_replicas <= service.wanted <= service.spec.max_replicas


TestServiceLife = ServiceLife.TestCase
TestServiceLife.settings = settings(
    max_examples=40, stateful_step_count=40, deadline=None
)
