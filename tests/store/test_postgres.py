"""What only a server can meet: heads that stop in the middle, restarts, others'
tables."""

import asyncio
import os
import threading
import time
from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import psycopg
import pytest
from sqlalchemy import Connection, text

from corral.domain.errors import (
    CorralError,
    SpecInvalid,
    StoreTrouble,
    TermLost,
    Unsupported,
)
from corral.domain.requests import Submit
from corral.domain.world import Changes
from corral.store.postgres import PostgresStore, database, opening
from corral.store.postgres.database import PostgresDatabase
from corral.store.schema import APPLICATION_ID, REVISION
from tests.patience import PATIENCE_SECONDS
from tests.postgres import Server, patient, server
from tests.store.rows import ANN, allocation, attempt, event, job, submit

IDLE, LOCK = database.IDLE_MILLISECONDS, database.LOCK_MILLISECONDS  # a head's own
Scenario = Callable[[PostgresStore], Awaitable[None]]


@pytest.fixture
def url(postgres: Server) -> str:
    return postgres.database()


def run(url: str, scenario: Scenario) -> None:
    async def whole() -> None:
        store = PostgresStore(url)
        try:
            await scenario(store)
        finally:
            await store.close()

    asyncio.run(whole())


def refusal(url: str) -> CorralError:
    with pytest.raises(CorralError) as refused:
        PostgresStore(url)
    return refused.value


def test_a_head_that_is_stopped_in_a_transaction_holds_nobody_up(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A paused leader keeps the lock of all who write; the server ends its session."""

    async def scenario(store: PostgresStore) -> None:
        old = (await store.lead()).term
        with monkeypatch.context() as patch:
            patch.setattr(database, "IDLE_MILLISECONDS", 300)  # its own alone
            paused = PostgresDatabase.at(url).raw(write=True)
        for statement in PostgresDatabase.begin_writing:
            paused.execute(statement)
        new = (await store.lead()).term  # waits until the lock is let go of
        with pytest.raises(psycopg.Error):
            paused.execute("UPDATE head SET term = term - 1")
        paused.close()
        with pytest.raises(TermLost):
            await store.commit(old, Changes(jobs=(job(1),)))
        await store.commit(new, Changes(jobs=(job(2),)))
        assert list((await store.lead()).jobs) == ["j2"]

    run(url, scenario)


def test_who_is_paused_is_ended_before_those_who_wait_give_up() -> None:
    assert 0 < IDLE < LOCK


def test_a_store_is_made_however_long_that_takes(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Longer than a head waits for a lock, or may be silent in a transaction, from then
    on."""
    bring_up = opening._bring_up

    def late(*given: Any) -> None:
        time.sleep(2.5)
        bring_up(*given)

    monkeypatch.setattr(opening, "_bring_up", late)
    monkeypatch.setattr(database, "IDLE_MILLISECONDS", 2_000)
    monkeypatch.setattr(database, "LOCK_MILLISECONDS", 20)
    with psycopg.connect(url) as other, ThreadPoolExecutor() as beside:
        other.execute("SELECT pg_advisory_xact_lock(%s)", (APPLICATION_ID,))
        made = beside.submit(PostgresStore, url)
        give_up_at = time.monotonic() + PATIENCE_SECONDS
        while not made.done() and not _waits(other):
            assert time.monotonic() < give_up_at
        other.execute("SELECT pg_sleep(0.05)")
        other.commit()
        asyncio.run(made.result().close())


def _waits(asking: psycopg.Connection[Any]) -> bool:
    """Whether somebody stands in line for what it holds."""
    row = asking.execute(
        "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted"
    )
    return row.fetchone() == (1,)


def test_who_holds_the_lock_for_too_long_is_trouble_that_passes(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(database, "LOCK_MILLISECONDS", 50)

    async def scenario(store: PostgresStore) -> None:
        await store.lead()
        with psycopg.connect(url) as other:
            other.execute("SELECT FROM head FOR UPDATE")
            asks = (
                store.add_request(submit(f"a{i}"), by=ANN, at=1.0) for i in range(20)
            )
            ended = await asyncio.gather(*asks, return_exceptions=True)
            assert {type(one) for one in ended} == {StoreTrouble}
            assert await store.jobs(final=True, limit=1) == []  # reads go on
        assert (await store.add_request(submit(), by=ANN, at=1.0)).sequence == 1

    run(url, scenario)


@pytest.fixture
def own_server() -> Iterator[Server]:
    with server() as one, patient():
        yield one


def test_a_server_that_is_killed_under_load_loses_nothing_that_was_acknowledged(
    own_server: Server,
) -> None:
    acknowledged: list[str] = []
    trouble: list[str] = []

    async def one(store: PostgresStore, number: int, gone: asyncio.Event) -> None:
        """Submit again and again under one key until it is acknowledged, as the client
        does."""
        while True:
            try:
                asked = Submit(specs=submit(f"a{number}").specs, key=f"k{number}")
                await store.add_request(asked, by=ANN, at=1.0)
                return acknowledged.append(f"k{number}")
            except StoreTrouble as error:
                trouble.append(error.message)
                gone.set()
                await asyncio.sleep(0.02)

    async def scenario(store: PostgresStore) -> None:
        term = (await store.lead()).term
        gone = asyncio.Event()
        load = [asyncio.create_task(one(store, number, gone)) for number in range(150)]
        while not acknowledged:
            await asyncio.sleep(0.001)
        await asyncio.to_thread(own_server.kill)
        late = [
            asyncio.create_task(one(store, 150 + number, gone)) for number in range(50)
        ]
        await gone.wait()
        await asyncio.to_thread(own_server.start)
        await asyncio.gather(*load, *late)
        keys = [request.asked.key for request in await store.requests_after(0)]  # type: ignore[union-attr]
        assert sorted(keys) == sorted(acknowledged)
        assert len(keys) == len(set(keys)) == 200
        await store.commit(term, Changes(jobs=(job(1),)))  # nobody has led since

    run(own_server.database(), scenario)
    assert trouble


def test_heads_that_come_at_once_make_one_store(url: str) -> None:
    made: list[PostgresStore] = []
    threads = [
        threading.Thread(target=lambda: made.append(PostgresStore(url)))
        for _ in range(6)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    async def clusters() -> set[str]:
        found = {(await store.lead()).cluster for store in made}
        for store in made:
            await store.close()
        return set(found)

    assert len(made) == 6
    assert len(asyncio.run(clusters())) == 1


def test_the_tables_of_another_program_are_left_alone(url: str) -> None:
    with psycopg.connect(url) as other:
        other.execute("CREATE TABLE invoices (id INTEGER)")
    refused = refusal(url)
    assert isinstance(refused, Unsupported)
    assert "invoices" in refused.message
    assert "createdb" in refused.hint
    with psycopg.connect(url) as other:
        tables = other.execute(
            "SELECT tablename FROM pg_tables WHERE schemaname = 'public'"
        )
        assert tables.fetchall() == [("invoices",)]


def test_a_newer_schema_is_refused_and_left_as_it_is(url: str) -> None:
    asyncio.run(PostgresStore(url).close())
    with psycopg.connect(url) as other:
        other.execute("UPDATE alembic_version SET version_num = '9999'")
    refused = refusal(url)
    assert isinstance(refused, Unsupported)
    assert "9999" in refused.message
    assert REVISION in refused.message


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (("dbname=d", "dbname=not_d"), '"not_d'),
        (("host=/tmp", "password=hunter2 host=/tmp/none"), "No such file"),
        (("user=corral", "user=stranger"), '"stranger"'),
    ],
)
def test_a_database_that_cannot_be_reached_is_trouble_with_what_to_do(
    url: str, change: tuple[str, str], said: str
) -> None:
    refused = refusal(url.replace(*change))
    assert isinstance(refused, StoreTrouble)
    assert said in refused.message
    assert "psql" in refused.hint
    assert "hunter2" not in f"{refused.message}{refused.hint}"


def test_what_is_no_address_is_refused_without_telling_its_password() -> None:
    refused = refusal("postgresql://corral:hunter2@host/corral?colour=blue")
    assert isinstance(refused, SpecInvalid)
    assert "hunter2" not in f"{refused.message}{refused.hint}"
    assert (
        PostgresDatabase.at("postgresql://a:hunter2@h:77/corral").name
        == "postgresql://h:77/corral"
    )


@pytest.mark.parametrize(
    "statement",
    ["UPDATE audit SET by = 'eve'", "DELETE FROM audit", "TRUNCATE audit"],
)
def test_the_audit_log_cannot_be_rewritten(url: str, statement: str) -> None:
    async def scenario(store: PostgresStore) -> None:
        await store.add_request(submit(), by=ANN, at=1.0)
        with (
            pytest.raises(psycopg.errors.RaiseException),
            psycopg.connect(url) as other,
        ):
            other.execute(statement)
        assert [one.by for one in await store.audit(limit=9)] == [ANN]

    run(url, scenario)


def test_what_only_reads_cannot_write(url: str) -> None:
    def write(connection: Connection) -> None:
        connection.execute(text("UPDATE head SET term = 99"))

    async def scenario(store: PostgresStore) -> None:
        with pytest.raises(StoreTrouble, match="read-only"):
            await store._quick.ask(write)

    run(url, scenario)


def test_a_commit_waits_for_as_many_answers_whatever_it_holds(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each is a way to the server and back, and a turn of a busy head."""
    waited = 0
    wait = psycopg.Connection.wait

    def counting(self: psycopg.Connection[Any], *given: Any, **more: Any) -> Any:
        nonlocal waited
        waited += 1
        return wait(self, *given, **more)

    async def scenario(store: PostgresStore) -> None:
        nonlocal waited
        term = (await store.lead()).term
        monkeypatch.setattr(psycopg.Connection, "wait", counting)
        counts = []
        for many in (range(1, 2), range(2, 202)):
            waited = 0
            rows = tuple(job(number) for number in many)
            await store.commit(
                term,
                Changes(
                    jobs=rows,
                    attempts=tuple(attempt(one.id) for one in rows),
                    allocations=tuple(allocation(one.id) for one in rows),
                    events=tuple(event("began", one.id) for one in rows),
                ),
            )
            counts.append(waited)
        assert counts == [5, 5], "begin, the head, the jobs, what is written, commit"
        assert len((await store.lead()).allocations) == 201

    run(url, scenario)


def test_what_was_acknowledged_was_written_to_the_disk(url: str) -> None:
    """Whatever the server's own default is."""
    with psycopg.connect(url, autocommit=True) as other:
        other.execute(
            f"ALTER DATABASE {other.info.dbname} SET synchronous_commit = off"
        )
    raw = PostgresDatabase.at(url).raw(write=True)
    assert raw.execute("SHOW synchronous_commit").fetchone() == ("on",)
    raw.close()


def test_the_servers_of_tests_do_not_run_as_root(postgres: Server) -> None:
    owner = os.stat(postgres.place / "data").st_uid
    assert owner != 0
