"""A service in a world of its own, in virtual time: what tests of services share."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from corral.domain.attempt import Exit
from corral.domain.ids import JobId, NodeId, ServiceName
from corral.domain.job import Job, JobSpec
from corral.domain.job_states import JobState
from corral.domain.node import Node
from corral.domain.observed_state import Phase
from corral.domain.requests import (
    ApplyService,
    Asked,
    RollBackService,
    ScaleService,
    SetNode,
    StopService,
)
from corral.domain.service import (
    CanaryRule,
    ReplicaRow,
    Service,
    ServiceSpec,
)
from corral.domain.service_facts import ServiceFacts
from corral.domain.serving_roles import ServingRole
from corral.domain.world import Event
from corral.reconcile.await_node_faults import SETTLES_SECONDS
from tests.worlds import Cluster, gang, node

CHAT = ServiceName("chat")
CRASH = Exit(code=7, at=1.0)
AT_ONCE = CanaryRule(seconds=0.0)


def replica_job(run: str = "serve v1", *, gpus: int = 1) -> JobSpec:
    return replace(gang("chat", gpus=gpus), run=run)


def service_spec(run: str = "serve v1", **more: Any) -> ServiceSpec:
    fields: dict[str, Any] = {
        "name": CHAT,
        "replica": replica_job(run),
        "models": ("chat",),
        "canary": CanaryRule(share=0.05, seconds=600.0),
        **more,
    }
    return ServiceSpec(**fields)


class Serving:
    """A cluster with one service; its replicas become ready when a test says so."""

    def __init__(
        self, spec: ServiceSpec | None = None, *, nodes: int | Sequence[Node] = 3
    ) -> None:
        if isinstance(nodes, int):
            nodes = [node(f"n{one}") for one in range(1, nodes + 1)]
        self.cluster = Cluster(*nodes)
        self.events: list[Event] = []
        self.jobs: dict[JobId, Job] = {}
        self.apply(spec or service_spec())

    # -- what people ask ---------------------------------------------------------------

    def apply(self, spec: ServiceSpec) -> None:
        self.ask(ApplyService(spec=spec, key_seed="5eed"))

    def scale(
        self, least: int, most: int, role: ServingRole = ServingRole.WHOLE
    ) -> None:
        self.ask(
            ScaleService(service=CHAT, min_replicas=least, max_replicas=most, role=role)
        )

    def roll_back(self, revision: int | None = None) -> None:
        self.ask(RollBackService(service=CHAT, revision=revision))

    def stop(self) -> None:
        self.ask(StopService(service=CHAT))

    def ask(self, asked: Asked) -> None:
        self.cluster.request(asked)
        self._take()

    # -- what happens ------------------------------------------------------------------

    def tick(self, seconds: float = 0.5, times: int = 1) -> None:
        for _ in range(times):
            self.cluster.tick(seconds=seconds)
            self._take()

    def _take(self) -> None:
        outcome = self.cluster.outcome
        assert outcome is not None
        assert not outcome.bugs, outcome.bugs
        self.events += outcome.changes.events
        self.jobs.update((job.id, job) for job in outcome.changes.jobs)

    def ready(self, *numbers: int) -> None:
        """Let these replicas answer their probe; without numbers, all that run."""
        for row in self.rows:
            if self.placed(row) and (not numbers or row.number in numbers):
                self.cluster.say(row.job, Phase.UP, is_ready=True)
        self.tick()

    def not_ready(self, number: int, probe_text: str = "") -> None:
        job = self.row(number).job
        self.cluster.say(job, Phase.UP, is_ready=False, probe_text=probe_text)
        self.tick()

    def up(self, number: int) -> None:
        self.cluster.say(self.row(number).job, Phase.UP, is_ready=False)
        self.tick()

    def end(self, number: int) -> None:
        """Let the replica end by itself, and be concluded in the last pass."""
        self.cluster.say(self.row(number).job, Phase.ENDED, exits=((0, CRASH),))
        self.tick()
        self.tick(SETTLES_SECONDS)

    def crash(self, number: int) -> None:
        """Let the replica end by itself, and the first delay pass."""
        self.end(number)
        self.tick()
        self.tick()

    def drain_node_of(self, number: int) -> None:
        for id in self.cluster.world.attempts[self.row(number).job].nodes:
            self.ask(SetNode(node=id, to="drain"))

    def leave(self) -> None:
        """Let the ranks of all jobs that are stopped end."""
        for job in self.cluster.world.in_state(JobState.STOPPING).values():
            exit = Exit(code=0, at=self.cluster.wall + 0.5)
            self.cluster.say(job.id, Phase.ENDED, exits=((0, exit),))
        self.tick()

    def lose(self, name: str) -> None:
        self.cluster.facts.proofs[NodeId(name)] = "its power is gone"
        self.cluster.mute.add(NodeId(name))
        self.tick()

    def measure(self, **facts: Any) -> None:
        self.cluster.facts.services[CHAT] = ServiceFacts(**facts)

    # -- what is -----------------------------------------------------------------------

    @property
    def service(self) -> Service:
        return self.cluster.world.services[CHAT]

    @property
    def rows(self) -> tuple[ReplicaRow, ...]:
        return self.service.replicas

    def row(self, number: int) -> ReplicaRow:
        return next(row for row in self.rows if row.number == number)

    def job(self, number: int) -> Job:
        return self.jobs[JobId(f"{self.service.id}_{number}")]

    def placed(self, row: ReplicaRow) -> bool:
        return self.cluster.world.jobs[row.job].state.is_live

    @property
    def numbers(self) -> list[int]:
        """Numbers of the replicas that are not being drained."""
        return [row.number for row in self.rows if row.draining_at is None]

    @property
    def draining(self) -> list[int]:
        return [row.number for row in self.rows if row.draining_at is not None]

    @property
    def ready_numbers(self) -> list[int]:
        return [row.number for row in self.rows if row.is_ready]

    def told(self, kind: str) -> list[str]:
        return [event.text for event in self.events if event.kind == kind]


def several(least: int, most: int, *, nodes: int = 3, **more: Any) -> Serving:
    spec = service_spec(min_replicas=least, max_replicas=most, **more)
    serving = Serving(spec, nodes=nodes)
    serving.ready()
    return serving


def serving_with(replicas: int, *, nodes: int = 4, **more: Any) -> Serving:
    more = {"min_replicas": replicas, "max_replicas": replicas, **more}
    serving = Serving(service_spec(**more), nodes=nodes)
    serving.ready()
    assert len(serving.ready_numbers) == replicas
    return serving


def apply(serving: Serving, run: str, **more: Any) -> None:
    """Apply the present settings with another command."""
    spec = serving.service.spec
    serving.apply(replace(spec, replica=replica_job(run), **more))


def on_trial(replicas: int = 2, **more: Any) -> Serving:
    """A service whose second revision is on trial, with its replica ready."""
    serving = serving_with(replicas, **more)
    apply(serving, "serve v2")
    serving.ready()
    assert serving.service.trial_since == serving.cluster.wall
    return serving


def two_gpu_replica(*, nodes: int = 1) -> Serving:
    spec = service_spec(replica=replica_job(gpus=2))
    serving = Serving(spec, nodes=nodes)
    serving.ready()
    return serving


def apply_large(serving: Serving, run: str, **more: Any) -> None:
    spec = serving.service.spec
    serving.apply(replace(spec, replica=replica_job(run, gpus=2), **more))


def has_passed(serving: Serving) -> bool:
    return serving.service.passed


def revisions(serving: Serving) -> dict[int, int]:
    return {row.number: row.revision for row in serving.rows if not row.draining_at}
