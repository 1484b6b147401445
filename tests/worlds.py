"""Small values for tests: nodes, jobs, facts. One line each, with only what matters
said."""

from collections.abc import Sequence

from corral.domain.attempt import Exit
from corral.domain.ids import AttemptNumber, BootId, ClusterId, JobId, NodeId, UserName
from corral.domain.ids import Sequence as Order
from corral.domain.job import CheckpointRule, JobSpec, Per
from corral.domain.job_states import JobState
from corral.domain.node import Liveness, Node
from corral.domain.node_signal import Signal, SignalKind
from corral.domain.observed_state import Facts, NodeFacts, Phase, Progress, Seen
from corral.domain.requests import Asked, StoredRequest, Submit
from corral.domain.resources import Gpu, Inventory, Resources
from corral.domain.world import World
from corral.health.health_rules import HealthRules
from corral.reconcile import Now, PassOutcome, reconcile
from corral.reconcile.await_node_faults import SETTLES_SECONDS
from corral.schedule import Learned

ALICE = UserName("alice")


def inventory(
    gpus: int = 2, kind: str = "h100", *, shared: str = "/shared"
) -> Inventory:
    return Inventory(
        gpus=tuple(
            Gpu(index=i, uuid=f"pretend-{i}", type=kind, memory_bytes=80_000_000_000)
            for i in range(gpus)
        ),
        cpu_millis=8000,
        memory_bytes=64_000_000_000,
        ports=(20001, 20002, 20003),
        shared=((shared, "mark-1"),) if shared else (),
    )


def node(
    id: str, gpus: int = 2, kind: str = "h100", *, shared: str = "/shared"
) -> Node:
    return Node(
        id=NodeId(id),
        boot=BootId(f"boot-{id}"),
        inventory=inventory(gpus, kind, shared=shared),
        liveness=Liveness.ALIVE,
    )


def gang(
    name: str = "gpt", *, nodes: int = 1, gpus: int = 1, **more: object
) -> JobSpec:
    """A job that asks for whole GPUs."""
    resources = Resources(gpu_millis=gpus * 1000)
    return JobSpec(name=name, run="true", nodes=nodes, resources=resources, **more)  # type: ignore[arg-type]


SAVING = CheckpointRule(path="/shared/ckpt")


class Cluster:
    """Reconcile over a world of its own: beats in, changes taken in at once. No store,
    no clock."""

    def __init__(self, *nodes: Node) -> None:
        self.world = World(cluster=ClusterId("c"), term=1)
        self.wall = 1_000_000.0
        self.serving = 0.0
        self.facts = Facts()
        self.seen: dict[NodeId, dict[tuple[JobId, AttemptNumber], Seen]] = {}
        self.nodes = {one.id: one for one in nodes}
        self.mute: set[NodeId] = set()
        self.outcome: PassOutcome | None = None
        self.learned: Learned | None = None
        self.signals: dict[NodeId, tuple[Signal, ...]] = {}
        self.health = HealthRules()
        self.tick()

    def request(self, asked: Asked) -> StoredRequest:
        sequence = Order(self.world.granted + 1)
        request = StoredRequest(sequence=sequence, by=ALICE, at=self.wall, asked=asked)
        self.tick([request])
        return request

    def submit(self, *specs: JobSpec) -> JobId:
        request = self.request(Submit(specs=specs, key=str(self.world.granted)))
        suffix = "" if len(specs) == 1 and specs[0].array_index is None else "_0"
        return JobId(f"j{request.sequence}{suffix}")

    def tick(
        self, requests: Sequence[StoredRequest] = (), *, seconds: float = 0.5
    ) -> PassOutcome:
        self.wall += seconds
        self.serving += seconds
        for id, one in self.nodes.items():
            if id not in self.mute:
                self.facts.nodes[id] = NodeFacts(
                    node=id,
                    boot=one.boot,
                    heard_at=self.serving,
                    inventory=one.inventory,
                    seen=tuple(self.seen.get(id, {}).values()),
                    signals=self.signals.get(id, ()),
                )
        self.outcome = self.decide(requests, Now(wall=self.wall, serving=self.serving))
        self.world.apply(self.outcome.changes)
        return self.outcome

    def decide(self, requests: Sequence[StoredRequest], now: Now) -> PassOutcome:
        return reconcile(
            self.world,
            self.facts,
            requests,
            now,
            learned=self.learned,
            health=self.health,
        )

    def notice(
        self, node: str, kind: SignalKind, code: int | None = None, **more: object
    ) -> None:
        """Let the node notice this, with who is on the device; it is said with the next
        beat."""
        gpu = more.get("gpu")
        more.setdefault(
            "attempts",
            tuple(
                (one.job, one.attempt)
                for one in self.world.allocations.values()
                if one.seat.node == node and (gpu is None or gpu in one.seat.gpus)
            ),
        )
        before = self.signals.get(NodeId(node), ())
        number = len(before) + 1
        text = f"{kind} {code}" if code is not None else str(kind)
        fresh = Signal(
            number=number,
            at=self.wall,
            kind=kind,
            code=code,
            text=text,
            **more,  # type: ignore[arg-type]
        )
        self.signals[NodeId(node)] = (*before, fresh)

    def say(
        self, id: JobId, phase: Phase, *, on: str | None = None, **more: object
    ) -> None:
        """Let the nodes of the newest attempt, or one of them, say this of it."""
        attempt = self.world.attempts[id]
        key = (id, attempt.number)
        for name in attempt.nodes if on is None else (NodeId(on),):
            self.seen.setdefault(name, {})[key] = Seen(key=key, phase=phase, **more)  # type: ignore[arg-type]

    def up(self, id: JobId, step: int | None = None) -> None:
        progress = None if step is None else Progress(step=step, at=self.wall)
        self.say(id, Phase.UP, progress=progress)
        self.tick()

    def end(
        self, id: JobId, exit: Exit, *, on: str | None = None, settle: bool = True
    ) -> None:
        """`settle`: nor does its machine say anything of it while that might change who
        pays."""
        self.say(id, Phase.ENDED, on=on, exits=((0, exit),))
        self.tick()
        job = self.world.jobs.get(id)
        held = any(one.job == id for one in self.world.allocations.values())
        if settle and job is not None and job.state == JobState.RECOVERING and not held:
            self.tick(seconds=SETTLES_SECONDS)


__all__ = ["ALICE", "SAVING", "Cluster", "Per", "gang", "inventory", "node"]
