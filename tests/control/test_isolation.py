"""What no store can hold costs the job or the node that it is of, and nobody else."""

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest

from corral.control import Control
from corral.domain.attempt import Save
from corral.domain.errors import Unrecordable
from corral.domain.event_kind import EventKind
from corral.domain.ids import AttemptNumber, BootId, JobId, NodeId
from corral.domain.job import CheckpointRule
from corral.domain.job_states import JobState
from corral.domain.observed_state import NodeFacts, Phase, Seen
from corral.domain.world import Changes, Event
from corral.store.event_sizes import BLOCK
from corral.store.postgres import PostgresStore
from corral.store.sqlite import SqliteStore
from tests.control.test_control import HandClock, Notebook
from tests.worlds import ALICE, gang, inventory

FIRST = AttemptNumber(1)
BAD = {
    "2^63": {"step": 2**63},
    "NaN": {"seconds": float("nan")},
    "surrogate": {"path": "\ud800"},
}


@pytest.fixture(params=["sqlite", "postgres"])
def store(
    request: pytest.FixtureRequest, tmp_path: Path
) -> SqliteStore | PostgresStore:
    if request.param == "sqlite":
        return SqliteStore(tmp_path / "corral.db")
    return PostgresStore(request.getfixturevalue("postgres").database())


def heard(control: Control, *seen: Seen, node: str = "n1") -> None:
    word = NodeFacts(
        node=NodeId(node),
        boot=BootId("b"),
        heard_at=control.serving_seconds(),
        inventory=inventory(2),
        seen=seen,
    )
    control.hear(word)


def save(job: JobId, **bad: object) -> Save:
    good = Save(
        job=job, attempt=FIRST, step=4, path="/x", manifest_sha256="", size_bytes=1, seconds=1.0,
        stall_seconds=0.0, at=1.0,
    )  # fmt: skip
    return replace(good, **bad)  # type: ignore[arg-type]


@pytest.mark.parametrize("bad", BAD.values(), ids=BAD)
def test_a_bad_save_fails_its_own_job_and_the_rest_is_committed(
    store: SqliteStore | PostgresStore, bad: dict[str, object]
) -> None:
    async def scenario() -> None:
        control = Control(store=store, engine=Notebook(), clock=HandClock())
        await control.start()
        heard(control)
        await control.tick()
        rule = CheckpointRule(path="/shared/c")
        asked = asyncio.create_task(
            control.submit(
                [gang("bad", checkpoint=rule), gang("good")], key="", by=ALICE
            )
        )
        while not asked.done():
            await control.tick()
            await asyncio.sleep(0)
        first, second = (job.id for job in await asked)
        up = [Seen(key=(job, FIRST), phase=Phase.UP) for job in (first, second)]
        heard(control, *up)
        await control.tick()
        heard(control, replace(up[0], saves=(save(first, **bad),)), up[1])
        await control.tick()
        assert control.world.jobs[second].state == JobState.RUNNING
        assert control.world.jobs[first].state == JobState.RECOVERING
        ended = Seen(key=(first, FIRST), phase=Phase.ENDED, saves=(save(first, **bad),))
        heard(control, ended, up[1])
        await control.tick()
        failed = await store.job(first)
        assert failed is not None
        assert (failed.state, failed.reason_code) == (JobState.FAILED, "Unrecordable")
        assert control.trouble == ""
        await store.close()

    asyncio.run(scenario())


def test_a_node_that_cannot_be_recorded_is_not_taken_in_and_others_are(
    store: SqliteStore | PostgresStore,
) -> None:
    async def scenario() -> None:
        control = Control(store=store, engine=Notebook(), clock=HandClock())
        await control.start()
        heard(control)
        word = NodeFacts(
            node=NodeId("n2"),
            boot=BootId("\ud800"),
            heard_at=control.serving_seconds(),
            inventory=inventory(2),
        )
        control.hear(word)
        await control.tick()
        assert set(control.world.nodes) == {"n1"}
        assert set(control.facts.unheard) == {"n2"}
        control.left(NodeId("n2"))
        heard(control, node="n2")
        await control.tick()
        assert set(control.world.nodes) == {"n1", "n2"}
        await store.close()

    asyncio.run(scenario())


def test_the_store_names_every_row_that_it_cannot_hold(
    store: SqliteStore | PostgresStore,
) -> None:
    async def scenario() -> None:
        term = (await store.lead()).term
        events = tuple(
            Event(at=1.0, kind=EventKind.SUBMITTED, text=text)
            for text in ("a", "\ud800", "b")
        )
        with pytest.raises(Unrecordable) as refused:
            await store.commit(term, Changes(events=events))
        assert len(refused.value.rows) == 1
        assert await store.commit(term, Changes(events=(events[0], events[2])))
        await store.close()

    asyncio.run(scenario())


def test_old_events_go_by_their_bytes_as_well(
    store: SqliteStore | PostgresStore,
) -> None:
    async def scenario() -> None:
        store._event_sizes._keep_bytes = 2_000_000
        term = (await store.lead()).term
        text = "x" * 1_000
        for _ in range(8):
            events = tuple(
                Event(at=1.0, kind=EventKind.SUBMITTED, text=text) for _ in range(BLOCK)
            )
            await store.commit(term, Changes(events=events))
        left = await store.events(after=0, job=None, limit=100 * BLOCK)
        assert BLOCK <= len(left) <= 5 * BLOCK
        assert left[-1].number == 8 * BLOCK
        await store.close()

    asyncio.run(scenario())
