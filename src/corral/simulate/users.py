"""Simulated users: what they submit, cancel, suspend and drain, and the answers they
receive."""

from collections.abc import Callable, Collection, Coroutine
from dataclasses import dataclass, replace
from random import Random
from typing import Any

from corral.domain.errors import Refusal, Trouble
from corral.domain.ids import JobId, NodeId, QueueName, UserName
from corral.domain.job import (
    DEFAULT_QUEUE,
    After,
    CheckpointRule,
    Disconnect,
    JobSpec,
    On,
    Per,
    Retry,
)
from corral.domain.queue import ANY_TYPE, Queue
from corral.domain.queue_policy import Policy, Preempt
from corral.domain.relocation import RelocationRule
from corral.domain.requests import Asked, Cancel, Resume, SetNode, SetQueues, Suspend
from corral.domain.resources import Resources
from corral.domain.time_point import EndWarning
from corral.simulate.auditor import Auditor
from corral.simulate.hang_behaviour import draw_hang_rule, draw_hangs
from corral.simulate.head import SimulatedHead
from corral.simulate.heads import SimulatedHeads
from corral.simulate.job_requests import draw_requests
from corral.simulate.rank_behaviour import draw_life, longer
from corral.simulate.world import Stage

INFRA = [20, 20, 20, 20, 20, 20, 1, 0]  # retries for faults of the cluster
MORE_JOBS = 12  # where jobs are moved
PATIENCE_SECONDS = 3.0  # without an answer for this long, a client asks again


@dataclass(slots=True)
class ClientCall:
    """One call of a simulated client to the head, which may be retried."""

    answered: bool = False


Run = Callable[[SimulatedHead, ClientCall], Coroutine[Any, Any, None]]


class SimulatedUsers:
    """Simulated clients that send requests to the head, and retry them. `acknowledged`:
    the job ids of each acknowledged submission, by its idempotency key."""

    def __init__(
        self,
        stage: Stage,
        nodes: Collection[NodeId],
        heads: SimulatedHeads,
        auditor: Auditor,
    ) -> None:
        self._stage = stage
        self._nodes = nodes
        self._heads = heads
        self._auditor = auditor
        self.chance = stage.stream("people")
        self._budgets = stage.stream("budgets")
        self._requests = stage.stream("wishes")
        self._shares = stage.stream("queues")
        self._lines = stage.stream("policy")
        # whether queues go by limits, or by service
        self._promises = self._lines.random() > 0.8
        self._moves = stage.stream("relocation")
        self._hangs = stage.stream("hangs")
        self._rule: RelocationRule | None = None
        self._queues: tuple[Queue, ...] = ()
        self.acknowledged: dict[str, tuple[JobId, ...]] = {}
        self.waiting = 0  # calls that will still be tried again
        self._number = 0

    def plan(self, jobs: int, until: float) -> None:
        """Draw everything that users will request before `until`."""
        if self._shares.random() < 0.6 or self._promises:
            gpus = self._stage.gpus * len(self._nodes)
            self._queues = draw_queues(self._shares, gpus)
            if self._promises:
                self._queues = draw_lines(self._lines, self._queues)
            min_runtime_seconds = self._shares.choice([0.0, 2.0, 8.0, 15.0])
            set_queues = SetQueues(
                queues=self._queues, whole=True, min_runtime_seconds=min_runtime_seconds
            )
            if not self._promises and min(self._stage.gpus, len(self._nodes)) > 1:
                self._rule = draw_relocation(self._moves)
            self.ask(replace(set_queues, relocation=self._rule))
        for _ in range(0 if self._rule is None else MORE_JOBS):
            self._stage.loop.later(self._moves.uniform(0.0, until), self._submit_some)
        for _ in range(jobs):
            self._stage.loop.later(
                self.chance.uniform(0.0, until * 0.7), self._submit_some
            )
        for _ in range(self.chance.randint(0, jobs)):
            self._stage.loop.later(self.chance.uniform(1.0, until), self._interfere)
        for _ in range(self.chance.choice([0, 0, 0, 1, 2])):
            self._stage.loop.later(self.chance.uniform(1.0, until), self._tend_a_node)

    @property
    def queues(self) -> tuple[Queue, ...]:
        """Return the queues that users have set; empty if they have set none."""
        return self._queues

    # -- what they ask for -----------------------------------------------------------------------

    def _submit_some(self) -> None:
        self._number += 1
        name = f"job{self._number}"
        spec = self._draw_spec(name)
        if self._stage.has_requests:
            spec = draw_requests(self._requests, spec, sorted(self.acknowledged))
        if self._promises and spec.max_duration_seconds is None:
            spec = replace(
                spec, max_duration_seconds=self._lines.choice([None, 15.0, 40.0, 90.0])
            )
        if self._rule is not None:
            spec = draw_size(self._moves, spec, self._stage.gpus)
        if spec.max_duration_seconds is None:
            spec = replace(
                spec, warn=EndWarning()
            )  # it would be refused: there is no end to warn before
        if self._stage.has_hangs:
            spec = replace(spec, hang=draw_hang_rule(self._hangs))
        if self.chance.random() < 0.12:
            limit = self.chance.choice([None, 1, 2])
            count = self.chance.randint(2, 4)
            specs = tuple(
                _array_element_spec(spec, index, limit) for index in range(count)
            )
        else:
            specs = (spec,)
        for job_spec in specs:
            life = draw_life(self.chance, saves=job_spec.checkpoint is not None)
            self._stage.lives[job_spec.name] = (
                life if self._rule is None else longer(life)
            )
            if self._stage.has_hangs and job_spec.hang_rule.is_on:
                self._stage.hangs[job_spec.name] = draw_hangs(
                    self._hangs, job_spec.hang_rule
                )
        self.submit(specs, name)

    def _draw_spec(self, name: str) -> JobSpec:
        chance, stage = self.chance, self._stage
        gpus = chance.randint(0, stage.gpus)
        millis = 500 if stage.shares and chance.random() < 0.15 else gpus * 1000
        saves = chance.random() < 0.5
        job_ids = [job for jobs in self.acknowledged.values() for job in jobs]
        waits = bool(job_ids) and chance.random() < 0.2
        return JobSpec(
            name=name,
            run="python train.py",
            nodes=min(chance.choice([1, 1, 1, 2, 2, 3]), len(self._nodes)),
            resources=Resources(gpu_millis=millis, cpu_millis=1000),
            priority=chance.choice([-100, 0, 0, 0, 100]),
            max_duration_seconds=chance.choice([None, None, None, 15.0, 40.0]),
            per=chance.choice([Per.NODE, Per.GPU]),
            checkpoint=CheckpointRule(path=f"/shared/{name}") if saves else None,
            retry=Retry(
                infra=self._budgets.choice(INFRA), user=chance.choice([0, 1, 2, 4])
            ),
            disconnect=chance.choice([None, None, Disconnect.WAIT, Disconnect.REPLACE]),
            self_stop_seconds=chance.choice([None, None, 8.0, 12.0]),
            grace_seconds=chance.choice([0.5, 2.0, 5.0]),
            after=(After(job=chance.choice(job_ids), on=chance.choice(list(On))),)
            if waits
            else (),
            **self._draw_share(),
        )

    def _draw_share(self) -> dict[str, Any]:
        """Draw a job's queue and whether the job is preemptible, as fields of its spec."""
        if not self._queues:
            return {}
        queue = self._shares.choice(self._queues)
        return {"queue": queue.name, "preemptible": self._shares.random() < 0.15}

    def _interfere(self) -> None:
        job_ids = [job for jobs in self.acknowledged.values() for job in jobs]
        if not job_ids:
            return
        job = self.chance.choice(job_ids)
        request_kind = self.chance.choice(["cancel", "cancel", "suspend", "resume"])
        requests: dict[str, Asked] = {
            "cancel": Cancel(job=job),
            "suspend": Suspend(job=job),
            "resume": Resume(job=job),
        }
        self.ask(requests[request_kind])
        if request_kind == "suspend":
            self._stage.loop.later(
                self.chance.uniform(2.0, 20.0), lambda: self.ask(Resume(job=job))
            )

    def _tend_a_node(self) -> None:
        node = self.chance.choice(sorted(self._nodes))
        self.ask(SetNode(node=node, to=self.chance.choice(["cordon", "drain"])))
        seconds = self.chance.uniform(2.0, 25.0)
        self._stage.loop.later(
            seconds, lambda: self.ask(SetNode(node=node, to="uncordon"))
        )

    # -- how they ask ----------------------------------------------------------------------------

    def ask(self, asked: Asked) -> None:
        self.waiting += 1
        if isinstance(asked, Cancel):
            self._auditor.cancel_asked(asked.job)
        elif isinstance(asked, Suspend):
            self._auditor.suspend_asked(asked.job)
        self._call_head(lambda head, call: self._send_request(head, call, asked))

    def submit(self, specs: tuple[JobSpec, ...], key: str) -> None:
        self.waiting += 1
        self._call_head(lambda head, call: self._submitting(head, call, specs, key))

    def _call_head(self, run: Run) -> None:
        """Call the head that currently answers. If no answer comes in time, call again."""
        call = ClientCall()
        head = self._heads.to_dial()
        if head is not None:
            head.process.start(run(head, call))
        self._stage.loop.later(PATIENCE_SECONDS, self._look, call, run)

    def _look(self, call: ClientCall, run: Run) -> None:
        if call.answered:
            self.waiting -= 1
        else:
            self._call_head(run)

    async def _submitting(
        self,
        head: SimulatedHead,
        call: ClientCall,
        specs: tuple[JobSpec, ...],
        key: str,
    ) -> None:
        try:
            jobs = await head.control.submit(specs, key=key, by=UserName("ann"))
        except Refusal as refusal:
            call.answered = True
            self._stage.tell(f"{key} is refused: {refusal.message}")
            return
        except Trouble:
            return
        call.answered = True
        ids = tuple(job.id for job in jobs)
        self._stage.tell(f"{key} is acknowledged as {', '.join(ids)}")
        self._auditor.acknowledged(key, specs, ids)
        self.acknowledged[key] = ids

    async def _send_request(
        self, head: SimulatedHead, call: ClientCall, asked: Asked
    ) -> None:
        try:
            await head.control.ask(asked, by=UserName("ann"))
        except Refusal as refusal:
            call.answered = True
            self._stage.tell(f"{asked} is refused: {refusal.message}")
            return
        except Trouble:
            return
        call.answered = True
        self._stage.tell(f"{asked} is granted")
        if isinstance(asked, Cancel):
            self._auditor.cancel_acknowledged(asked.job)


def draw_queues(chance: Random, gpus: int) -> tuple[Queue, ...]:
    """Return two to four random queues. Together they own all GPUs of the cluster, or a
    part of them."""
    names = ["default", "a", "b", "c"][: chance.randint(2, 4)]
    gpus_left, queues = gpus, []
    limits = [None, None, None, gpus * 1000, 2000]
    for name in names:
        own_gpus = (
            chance.randint(0, gpus_left)
            if name != names[-1] or chance.random() < 0.3
            else gpus_left
        )
        gpus_left -= own_gpus
        queues.append(
            Queue(
                name=QueueName(name),
                nominal=((ANY_TYPE, own_gpus * 1000),) if own_gpus else (),
                borrow_limit_millis=None
                if name == "default"
                else chance.choice(limits),
                preempt=chance.choice(list(Preempt)),
                policy=_draw_policy(
                    chance.choice([Policy.DEFAULT, Policy.FIFO_SKIP]), own_gpus
                ),
            )
        )
    return tuple(queues)


def draw_relocation(chance: Random) -> RelocationRule | None:
    """Return a random relocation rule, with a budget above or below the cost of most
    moves; None: no moves."""
    if chance.random() < 0.5:
        return None
    return RelocationRule(
        gpu_hours=chance.choice([0.001, 1.0]),
        pause_seconds=chance.choice([0.0, 30.0, 90.0]),
    )


def draw_size(chance: Random, spec: JobSpec, gpus: int) -> JobSpec:
    """Return the spec with a random size: most jobs are small, and most of the small
    jobs save checkpoints; now and then a job needs all GPUs of a node. `gpus`: GPUs of
    a node."""
    spec = replace(spec, queue=DEFAULT_QUEUE, preemptible=False, nodes=1)
    if chance.random() < 0.3:
        return replace(
            spec, resources=Resources(gpu_millis=gpus * 1000, cpu_millis=1000)
        )
    saves = chance.random() < 0.8
    rule = CheckpointRule(path=f"/shared/{spec.name}")
    small = Resources(gpu_millis=max(1, gpus // 2) * 1000, cpu_millis=1000)
    spec = replace(
        spec, resources=small, max_duration_seconds=None, grace_seconds=0.5, priority=0
    )
    return replace(spec, checkpoint=rule if saves else None)


def _draw_policy(drawn: Policy, own: int) -> Policy:
    """Return the policy of a queue: the drawn one, but shortest-job-first instead of
    FIFO_SKIP if `own`, its number of GPUs, is odd."""
    return Policy.SJF if drawn == Policy.FIFO_SKIP and own % 2 else drawn


def draw_lines(chance: Random, queues: tuple[Queue, ...]) -> tuple[Queue, ...]:
    """Return the queues, each with a random policy that promises starts or orders jobs
    by service."""
    policies = [
        Policy.BACKFILL,
        Policy.CONSERVATIVE,
        Policy.CONSERVATIVE,
        Policy.ATTAINED,
    ]
    return tuple(replace(queue, policy=chance.choice(policies)) for queue in queues)


def _array_element_spec(spec: JobSpec, index: int, limit: int | None) -> JobSpec:
    name = f"{spec.name}-{index}"
    return replace(spec, name=name, array_index=index, array_limit=limit)
