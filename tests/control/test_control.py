"""The loop over a memory store and an engine that only writes down what it is told."""

import asyncio
from collections.abc import Coroutine, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from typing import TypeVar

import pytest

from corral.control import Control
from corral.domain.attempt import Exit
from corral.domain.cluster_warning import WarningCode
from corral.domain.desired_state import DesiredState
from corral.domain.engine_limit import EngineLimit
from corral.domain.errors import (
    CannotFit,
    Conflict,
    NotFound,
    NotShared,
    Refusal,
    StoreTrouble,
    Unsupported,
)
from corral.domain.ids import AttemptNumber, JobId, NodeId, UserName
from corral.domain.job import After, CheckpointRule, JobSpec, On
from corral.domain.job_states import JobState
from corral.domain.node import NodeKind
from corral.domain.observed_state import AttemptKey, NodeFacts, Phase, Seen
from corral.domain.requests import Cancel, Resume, SetNode, Suspend
from corral.domain.time_point import Moment
from corral.domain.world import Changes, Event
from corral.reconcile import reconcile as real_reconcile
from corral.store.memory_store import MemoryStore
from tests.worlds import ALICE, gang, node

T = TypeVar("T")


class HandClock:
    def __init__(self) -> None:
        self.now = 1000.0
        self.set_forward = 0.0

    def wall(self) -> float:
        return self.now + self.set_forward

    def monotonic(self) -> float:
        return self.now

    def fresh_id(self) -> str:
        return "0" * 32


@dataclass
class Notebook:
    name: str = "notebook"
    cannot: Mapping[str, EngineLimit] = field(
        default_factory=lambda: {
            "image": EngineLimit(reason="no images here", hint="run: corral status")
        }
    )
    could_bring: Sequence[NodeKind] = ()
    restarts_in_place: bool = True
    shown_by: str = ""
    trouble: str = ""
    is_unreachable: bool = False
    told: list[DesiredState] = field(default_factory=list)
    proofs: dict[NodeId, str] = field(default_factory=dict)
    lost: set[NodeId] = field(default_factory=set)

    def observe(self) -> Mapping[NodeId, str]:
        return self.proofs

    def gone(self) -> Set[NodeId]:
        return self.lost

    def says(self, key: AttemptKey) -> str:
        return ""

    def apply(self, wanted: DesiredState) -> None:
        self.told.append(wanted)


class Head:
    """A Control with two nodes of two GPUs that beat at each tick."""

    def __init__(self, store: MemoryStore | None = None) -> None:
        self.clock = HandClock()
        self.engine = Notebook()
        self.store = store or MemoryStore()
        self.replays: list[str] = []
        self.control = Control(
            store=self.store,
            engine=self.engine,
            clock=self.clock,
            keep_replay=lambda name, text: self.replays.append(name),
        )
        self.seen: dict[str, tuple[Seen, ...]] = {}
        self.refused_users: tuple[tuple[str, str], ...] = ()

    async def start(self) -> "Head":
        await self.control.start()
        await self.step()
        return self

    async def step(self, seconds: float = 0.5) -> float:
        self.clock.now += seconds
        for id in ("n1", "n2"):
            one = node(id)
            self.control.hear(
                NodeFacts(
                    node=one.id,
                    boot=one.boot,
                    heard_at=self.control.serving_seconds(),
                    inventory=replace(one.inventory, refused_users=self.refused_users),
                    seen=self.seen.get(id, ()),
                )
            )
        return await self.control.tick()

    async def granted(self, asking: Coroutine[object, object, T]) -> T:
        task = asyncio.ensure_future(asking)
        for _ in range(3):
            await asyncio.sleep(0)
        if not task.done():
            await self.step()
        return await task

    async def submit(self, *specs: JobSpec, key: str = "k") -> JobId:
        return (await self.granted(self.control.submit(specs, key=key, by=ALICE)))[0].id


def story(tell: Coroutine[object, object, T]) -> T:
    return asyncio.run(tell)


def test_a_submitted_job_is_granted_placed_and_told_to_its_nodes() -> None:
    async def tell() -> None:
        head = await Head().start()
        id = await head.submit(gang(nodes=2, gpus=2))
        assert head.control.world.jobs[id].state == JobState.STARTING
        newest = {word.node: word for word in head.engine.told}
        assert [len(word.run) for word in newest.values()] == [1, 1]
        versions = [word.version for word in head.engine.told]
        assert versions == sorted(versions)

    story(tell())


def test_the_same_key_again_answers_with_the_first_job() -> None:
    async def tell() -> None:
        head = await Head().start()
        first = await head.submit(gang(), key="same")
        assert await head.submit(gang(), key="same") == first
        assert len(head.control.world.jobs) == 1

    story(tell())


@pytest.mark.parametrize(
    ("spec", "refusal"),
    [
        (gang(gpus=64), CannotFit),
        (gang(nodes=9), CannotFit),
        (gang(image="ubuntu"), Unsupported),
        (gang(nodes=2, checkpoint=CheckpointRule(path="/home/alice/ckpt")), NotShared),
    ],
)
def test_what_no_wait_could_cure_is_refused_and_changes_nothing(
    spec: JobSpec, refusal: type[Refusal]
) -> None:
    async def tell() -> None:
        head = await Head().start()
        with pytest.raises(refusal) as error:
            await head.control.submit([spec], key="k", by=ALICE)
        assert error.value.hint
        assert not await head.store.requests_after(0)

    story(tell())


def test_requests_that_cannot_be_granted_are_refused() -> None:
    async def tell() -> None:
        head = await Head().start()
        id = await head.submit(gang())
        with pytest.raises(Conflict):
            await head.control.ask(Resume(job=id), by=ALICE)
        with pytest.raises(NotFound):
            await head.control.ask(Cancel(job=JobId("j99")), by=ALICE)
        with pytest.raises(NotFound):
            await head.control.ask(SetNode(node=NodeId("n9"), to="drain"), by=ALICE)
        await head.granted(head.control.ask(Cancel(job=id), by=ALICE))
        assert head.control.world.jobs[id].state == JobState.STOPPING

    story(tell())


def test_a_dry_run_says_where_and_nothing_happens() -> None:
    async def tell() -> None:
        head = await Head().start()
        planned = head.control.dry_run([gang(nodes=2, gpus=2)] * 2, by=ALICE)
        assert [len(one.seats) for one in planned] == [2, 0]
        assert planned[1].reason is not None
        assert planned[1].reason.code == "Resources"
        assert not head.control.world.jobs
        assert not await head.store.requests_after(0)

    story(tell())


def test_a_dry_run_says_that_no_node_has_an_account_for_the_user() -> None:
    async def tell() -> None:
        head = await Head().start()
        head.refused_users = ((ALICE, "it has no account alice"),)
        await head.step()
        (planned,) = head.control.dry_run([gang()], by=ALICE)
        assert planned.reason is not None
        assert planned.reason.code == "NoAccount"
        assert planned.reason.suggestions == ("node n1: it has no account alice",)
        assert not planned.may_start_later
        (other,) = head.control.dry_run([gang()], by=UserName("bob"))
        assert other.seats
        later = head.control.dry_run([gang(nodes=2, gpus=2)] * 2, by=UserName("bob"))
        assert [one.may_start_later for one in later] == [False, True]

    story(tell())


def test_a_dry_run_names_no_id_of_a_job_that_does_not_exist() -> None:
    async def tell() -> None:
        head = await Head().start()
        known = await head.submit(gang("known"))
        waits = (After(job=JobId("@0")), After(job=known, name="known"))
        first, second = head.control.dry_run(
            [gang("first"), gang("second", after=waits)], by=ALICE
        )
        assert first.reason is None
        assert second.reason is not None
        assert second.reason.code == "Dependency"
        assert (
            second.reason.sentence
            == f"the job waits for first to be done, known ({known}) to be done"
        )
        late = gang("late", begin=Moment(after_seconds=1800.0))
        (planned,) = head.control.dry_run([late], by=ALICE)
        assert planned.reason is not None
        assert planned.reason.code == "BeginTime"
        assert not planned.reason.suggestions

    story(tell())


def test_a_dry_run_does_not_wait_for_what_has_happened() -> None:
    async def tell() -> None:
        head = await Head().start()
        ran = await head.submit(gang("ran"), key="a")
        other = await head.submit(gang("other", nodes=2, gpus=2), key="b")
        await head.granted(head.control.ask(Cancel(job=other), by=ALICE))
        over = Exit(code=0, at=1.0)
        head.seen["n1"] = (
            Seen(key=(ran, AttemptNumber(1)), phase=Phase.ENDED, exits=((0, over),)),
        )
        await head.step()
        done = After(job=ran, name="ran")
        started = After(job=ran, name="ran", on=On.STARTED)
        for met in ((done,), (started,), (done, started)):
            (planned,) = head.control.dry_run([gang("next", after=met)], by=ALICE)
            assert planned.reason is None
            assert planned.seats
        both = gang("both", after=(done, After(job=JobId("@0"))))
        _, planned = head.control.dry_run([gang("first"), both], by=ALICE)
        assert planned.reason is not None
        assert planned.reason.sentence == "the job waits for first to be done"
        hopeless = gang("hopeless", after=(After(job=other, name="other"),))
        (planned,) = head.control.dry_run([hopeless], by=ALICE)
        assert planned.reason is not None
        assert planned.reason.code == "DependencyNeverSatisfied"

    story(tell())


def test_a_new_head_goes_on_where_the_old_one_died_and_outranks_it() -> None:
    async def tell() -> None:
        old = await Head().start()
        id = await old.submit(gang())
        # and dies before the next tick
        await old.control.acknowledge(Suspend(job=id), by=ALICE)
        new = await Head(old.store).start()
        assert new.control.world.jobs[id].state == JobState.STOPPING
        assert min(w.version for w in new.engine.told) > max(
            w.version for w in old.engine.told
        )
        assert new.control.world.attempts[id].number == 1

    story(tell())


def test_a_step_of_training_wakes_nobody_and_a_changed_phase_does() -> None:
    async def tell() -> None:
        head = await Head().start()
        id = await head.submit(gang())
        where = head.control.world.attempts[id].nodes[0]
        head.seen[where] = (
            Seen(key=(id, head.control.world.jobs[id].attempt), phase=Phase.UP),
        )
        await head.step()
        assert head.control.world.jobs[id].state == JobState.RUNNING
        told = len(head.engine.told)
        await head.step()
        assert len(head.engine.told) == told

    story(tell())


def test_a_store_that_fails_once_costs_a_reload_and_loses_nothing() -> None:
    class Failing(MemoryStore):
        broken = False

        async def commit(self, term: int, changes: Changes) -> tuple[Event, ...]:
            if self.broken:
                self.broken = False
                raise StoreTrouble("the disk is full")
            return tuple(await super().commit(term, changes))

    async def tell() -> None:
        store = Failing()
        head = await Head(store).start()
        running = asyncio.ensure_future(head.control.run())
        store.broken = True
        jobs = await head.control.submit([gang()], key="k", by=ALICE)
        assert head.control.world.jobs[jobs[0].id].state == JobState.STARTING
        running.cancel()

    story(tell())


def test_a_bug_met_on_one_job_holds_it_and_lets_the_others_run(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def tell() -> None:
        head = await Head().start()
        bad = await head.submit(gang("bad"), key="1")
        good = await head.submit(gang("good"), key="2")
        from corral.reconcile.attempts import see_attempt as real

        def faulty(draft: object, job: object) -> None:
            if getattr(job, "id", None) == bad:
                raise ZeroDivisionError("a fault of ours")
            real(draft, job)  # type: ignore[arg-type]

        monkeypatch.setattr("corral.reconcile.reconcile_pass.see_attempt", faulty)
        where = head.control.world.attempts[good].nodes[0]
        key = (good, head.control.world.jobs[good].attempt)
        head.seen[where] = (
            Seen(key=key, phase=Phase.ENDED, exits=((0, Exit(code=0)),)),
        )
        await head.step(1.5)
        assert head.control.world.ended[good] == JobState.DONE
        assert bad in head.replays

    story(tell())


def test_an_engine_that_does_not_answer_is_among_the_warnings() -> None:
    async def tell() -> None:
        head = await Head().start()
        assert head.control.warnings() == []
        head.engine.trouble = "Slurm does not answer: no route to host"
        (warning,) = head.control.warnings()
        assert (warning.code, warning.text) == (
            WarningCode.ENGINE,
            head.engine.trouble,
        )
        head.engine.is_unreachable = True
        (warning,) = head.control.warnings()
        assert warning.code == WarningCode.ENGINE_UNREACHABLE

    story(tell())


def test_a_broken_invariant_stops_placement_and_cancels_go_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def tell() -> None:
        head = await Head().start()
        from corral.domain.errors import InvariantBroken

        def broken(*args: object, placing: bool = True, **more: object) -> object:
            if placing:
                raise InvariantBroken("I3: GPUs [0] of node n1 would be used twice")
            return real_reconcile(*args, placing=False, **more)  # type: ignore[arg-type]

        monkeypatch.setattr("corral.control.control.reconcile", broken)
        id = await head.submit(gang())
        assert head.control.world.jobs[id].state == JobState.QUEUED
        assert any(
            "no jobs are placed any more" in said.text
            for said in head.control.warnings()
        )
        await head.granted(head.control.ask(Cancel(job=id), by=ALICE))
        assert head.control.world.ended[id] == JobState.CANCELLED

    story(tell())


def test_events_reach_whoever_follows_at_once_and_only_of_their_job() -> None:
    async def tell() -> None:
        head = await Head().start()
        async with head.control.hub.follow(JobId("j1")) as queue:
            await head.submit(gang(), key="1")
            await head.submit(gang(), key="2")
            seen = [queue.get_nowait() for _ in range(queue.qsize())]
        assert [event.kind for event in seen if event] == ["submitted", "placed"]
        assert {event.job for event in seen if event} == {"j1"}

    story(tell())


def test_a_paused_head_does_not_count_the_pause_as_silence() -> None:
    async def tell() -> None:
        head = await Head().start()
        id = await head.submit(gang(checkpoint=CheckpointRule(path="/shared/c")))
        head.clock.now += 3600
        await head.control.tick()
        assert head.control.world.jobs[id].attempt == 1
        assert head.control.serving_seconds() < 10

    story(tell())


def test_a_wall_clock_that_is_set_a_day_forward_ends_no_job() -> None:
    async def tell() -> None:
        head = await Head().start()
        id = await head.submit(gang(max_duration_seconds=3600.0))
        where = head.control.world.attempts[id].nodes[0]
        head.seen[where] = (
            Seen(key=(id, head.control.world.jobs[id].attempt), phase=Phase.UP),
        )
        await head.step()
        head.clock.set_forward = 86_400.0
        await head.step(1.5)
        assert head.control.world.jobs[id].state == JobState.RUNNING
        for _ in range(4):
            await head.step(1000.0)
        assert head.control.world.jobs[id].state == JobState.STOPPING

    story(tell())
