"""Whatever is asked in whatever order, a store on tables answers as the model in memory
does."""

import asyncio
import shutil
import tempfile
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from corral.domain.attempt import SeatState
from corral.domain.errors import CorralError, InvariantBroken, TermLost
from corral.domain.ids import JobId, NodeId, Sequence, UserName, job_id
from corral.domain.job_states import JobState
from corral.domain.requests import Cancel, SetNode
from corral.domain.run_history import StartForecastTold
from corral.domain.service import ServiceState
from corral.domain.users import LADDER, AuditEntry, Role, Token, User, token_id
from corral.domain.world import Changes, World
from corral.ports.store import Store
from corral.store.memory_store import MemoryStore
from corral.store.postgres import PostgresStore
from corral.store.sqlite import SqliteStore
from corral.store.tables import TableStore
from tests.postgres import Server
from tests.store.rows import (
    allocation,
    attempt,
    debt,
    event,
    gateway_count,
    job,
    node,
    receipt,
    reservation,
    save,
    service,
    spec,
    spent,
    submit,
    told,
    tree,
    use,
)

KEEP_KEYS = 6
numbers = st.integers(1, 6)
users = st.sampled_from([UserName("ann"), UserName("bob")])
roles = st.sampled_from(LADDER)
digests = st.sampled_from(["ab" * 32, "cd" * 32, "ef" * 32])
few = {"max_size": 3}
job_rows = st.builds(
    lambda n, state, name, reason: job(n, state, spec=spec(name), reason=reason),
    numbers,
    st.sampled_from(JobState),
    st.sampled_from(["a", "b"]),
    st.text(max_size=5),
)
ids = numbers.map(job_id)
changes = st.builds(
    Changes,
    jobs=st.lists(job_rows, **few).map(tuple),  # type: ignore[arg-type]
    attempts=st.lists(st.builds(attempt, ids, st.integers(1, 3)), max_size=2).map(
        tuple
    ),
    allocations=st.lists(
        st.builds(
            allocation,
            ids,
            st.integers(1, 2),
            st.just("n1"),
            st.sampled_from(SeatState),
        ),
        max_size=2,
    ).map(tuple),
    nodes=st.lists(
        st.builds(node, st.sampled_from(["n1", "n2"]), numbers), max_size=1
    ).map(tuple),
    saves=st.lists(
        st.builds(save, ids, numbers, quarantined=st.sampled_from(["", "torn"])),
        max_size=2,
    ).map(tuple),
    receipts=st.lists(
        st.builds(receipt, ids, kind=st.sampled_from(["failure", "preemption"])),
        max_size=2,
    ).map(tuple),
    events=st.lists(
        st.builds(event, st.text(max_size=5), st.none() | ids), max_size=3
    ).map(tuple),
    queues=st.none() | st.builds(tree, numbers),
    uses=st.lists(
        st.builds(use, st.sampled_from(["team", "below"]), users, st.floats(0, 1e9)),
        max_size=2,
    ).map(tuple),
    spent=st.lists(st.builds(spent, demoted=st.booleans()), max_size=1).map(tuple),
    debts=st.lists(st.builds(debt, rate=st.floats(-9.0, 9.0)), max_size=1).map(tuple),
    reservations=st.lists(
        st.builds(reservation, ids, ended=st.sampled_from(["", "placed"])), max_size=2
    ).map(tuple),
    services=st.lists(
        st.builds(
            lambda n, state: service(n, f"s{n}", state=state),
            numbers,
            st.sampled_from(ServiceState),
        ),
        max_size=2,
    ).map(tuple),
    gateway_counts=st.lists(
        st.builds(
            gateway_count,
            st.sampled_from(["p1", "p2"]),
            st.sampled_from(["chat", "x"]),
            numbers,
        ),
        max_size=2,
        unique_by=lambda count: count.key,
    ).map(tuple),
    forgotten_processes=st.lists(st.sampled_from(["p1", "p2"]), max_size=1).map(tuple),
    granted=st.none() | st.integers(0, 8).map(Sequence),
    forgotten=st.lists(ids, max_size=2, unique=True).map(tuple),
)


def line(what: str, at: float) -> AuditEntry:
    return AuditEntry(at=at, by=UserName("ann"), token=None, what=what, on="x")


async def saves_of(store: Store, id: JobId) -> Any:
    return await store.saves(id)


class Stores(RuleBasedStateMachine):
    """Two heads on one SQLite file, or one database, and the same calls on the
    model."""

    def __init__(self) -> None:
        super().__init__()
        self.loop = asyncio.new_event_loop()
        self.place = self.new_place()
        self.model = MemoryStore(keep_keys=KEEP_KEYS)
        self.store = self.opened()
        self.terms = [0]
        self.world: World | None = None  # what the leading head has in memory

    def new_place(self) -> str:
        return tempfile.mkdtemp(prefix="corral-model-")

    def opened(self) -> TableStore:
        path = Path(self.place) / "corral.db"
        return SqliteStore(path, fresh_id=lambda: "memory", keep_keys=KEEP_KEYS)

    def leave_place(self) -> None:
        shutil.rmtree(self.place)

    def both(self, ask: Callable[[Store], Awaitable[Any]]) -> Any:
        """The answer, or the kind of the error, which must be the same."""

        async def answer(store: Store) -> Any:
            try:
                return await ask(store)
            except CorralError as error:
                return type(error), error.message

        real = self.loop.run_until_complete(answer(self.store))
        assert real == self.loop.run_until_complete(answer(self.model))
        return real

    @rule()
    def a_head_leads(self) -> None:
        found = self.both(lambda store: store.lead())
        assert found.term == self.terms[-1] + 1
        if self.world is not None:  # what the last head thought is what is recorded
            self.world.term = found.term
            assert found == self.world
        self.terms.append(found.term)
        self.world = found

    @rule(
        user=users,
        key=st.sampled_from(["", "k1", "k2", "k3"]),
        name=st.sampled_from("ab"),
    )
    def submit(self, user: UserName, key: str, name: str) -> None:
        self.both(lambda store: store.add_request(submit(name, key), by=user, at=1.5))

    @rule(user=users, id=ids)
    def cancel(self, user: UserName, id: JobId) -> None:
        self.both(lambda store: store.add_request(Cancel(job=id), by=user, at=2.0))

    @rule(user=users)
    def drain(self, user: UserName) -> None:
        self.both(
            lambda store: store.add_request(
                SetNode(node=NodeId("n1"), to="drain"), by=user, at=3.0
            )
        )

    @precondition(lambda self: self.world is not None)
    @rule(changes=changes)
    def commit(self, changes: Changes) -> None:
        assert self.world is not None
        done = self.both(lambda store: store.commit(self.terms[-1], changes))
        if isinstance(done, tuple):
            assert done[0] is InvariantBroken
        else:
            self.world.apply(changes)

    @rule(changes=changes, back=st.integers(1, 3))
    def a_head_of_an_old_term_commits(self, changes: Changes, back: int) -> None:
        done = self.both(lambda store: store.commit(self.terms[-1] - back, changes))
        assert done[0] is TermLost

    @rule(seed=st.lists(changes, min_size=2, max_size=4))
    def commits_that_wait_together(self, seed: list[Changes]) -> None:
        """Grouped on tables, one after the other in the model."""

        async def together() -> list[Any]:
            asks = [self.store.commit(self.terms[-1], one) for one in seed]
            return await asyncio.gather(*asks, return_exceptions=True)

        async def in_turn() -> list[Any]:
            asks = [self.model.commit(self.terms[-1], one) for one in seed]
            return [
                (await asyncio.gather(ask, return_exceptions=True))[0] for ask in asks
            ]

        real = self.loop.run_until_complete(together())
        expected = self.loop.run_until_complete(in_turn())
        assert list(map(repr, real)) == list(map(repr, expected))
        for one, done in zip(seed, real, strict=True):
            if self.world is not None and not isinstance(done, Exception):
                self.world.apply(one)

    @rule(name=st.sampled_from("AB"), value=st.binary(max_size=4))
    def put_secret(self, name: str, value: bytes) -> None:
        self.both(
            lambda store: store.put_secret(name, value, by=UserName("ann"), at=1.0)
        )

    @rule(
        rows=st.lists(
            st.builds(told, ids, numbers, waited_seconds=st.none() | st.floats(0, 9)),
            max_size=3,
        ),
        void=st.lists(ids, max_size=2),
    )
    def tell(self, rows: list[StartForecastTold], void: list[JobId]) -> None:
        self.both(lambda store: store.tell(rows, void=void))

    @rule(limit=numbers)
    def what_a_head_learns_from(self, limit: int) -> None:
        self.both(lambda store: store.runs(limit=limit))
        self.both(lambda store: store.told(limit=limit))

    @rule(name=st.sampled_from("AB"))
    def drop_secret(self, name: str) -> None:
        self.both(lambda store: store.drop_secret(name))

    @rule(name=users, role=roles, at=numbers)
    def add_user(self, name: UserName, role: Role, at: int) -> None:
        user = User(name=name, role=role, created_at=at)
        self.both(lambda store: store.add_user(user, entry=line("user.add", at)))

    @rule(
        name=users,
        role=st.none() | roles,
        disabled=st.none() | st.booleans(),
        at=numbers,
    )
    def change_user(
        self, name: UserName, role: Role | None, disabled: bool | None, at: int
    ) -> None:
        entry = line("user.set", at)
        self.both(
            lambda store: store.change_user(
                name, role=role, disabled=disabled, entry=entry
            )
        )

    @rule(name=users, at=numbers)
    def remove_user(self, name: UserName, at: int) -> None:
        self.both(
            lambda store: store.remove_user(name, at=at, entry=line("user.remove", at))
        )

    @rule(name=users, sha256=digests, role=roles, at=numbers)
    def add_token(self, name: UserName, sha256: str, role: Role, at: int) -> None:
        token = Token(
            id=token_id(sha256), sha256=sha256, user=name, role=role, created_at=at
        )
        self.both(lambda store: store.add_token(token, entry=line("token.create", at)))

    @rule(sha256=digests, at=numbers)
    def use_revoke_or_forget_a_token(self, sha256: str, at: int) -> None:
        id, entry = token_id(sha256), line("token.revoke", at)
        self.both(lambda store: store.use_token(id, at=at))
        if at % 2:
            self.both(lambda store: store.revoke_token(id, at=at, entry=entry))
        if at % 3 == 0:
            forgotten = line("token.forget", at)
            self.both(lambda store: store.forget_token(id, entry=forgotten))

    @rule(
        known=st.lists(digests, max_size=3),
        by=st.none() | users,
        limit=numbers,
        at=numbers,
    )
    def read_people(
        self, known: list[str], by: UserName | None, limit: int, at: int
    ) -> None:
        self.both(lambda store: store.users())
        self.both(lambda store: store.tokens())
        self.both(lambda store: store.identities(known))
        self.both(
            lambda store: store.audit(by=by, since=at, before=9 * at, limit=limit)
        )

    @rule()
    def restart(self) -> None:
        self.loop.run_until_complete(self.store.close())
        self.store = self.opened()

    @rule()
    def another_process_takes_over(self) -> None:
        before, self.store = self.store, self.opened()
        self.both(lambda store: store.requests_after(0))
        self.loop.run_until_complete(before.close())

    @rule(id=ids, after=st.integers(0, 9), limit=st.integers(0, 5))
    def read(self, id: JobId, after: int, limit: int) -> None:
        self.both(lambda store: store.job(id))
        self.both(lambda store: store.attempts(id))
        self.both(lambda store: store.receipts(id))
        self.both(lambda store: store.events(after=after, job=None, limit=limit))
        self.both(lambda store: store.events(after=after, job=id, limit=limit))
        self.both(lambda store: store.jobs(final=bool(after % 2), limit=limit))
        self.both(lambda store: store.named("a"))
        self.both(lambda store: store.names())
        self.both(lambda store: store.secrets())

    @invariant()
    def requests_are_the_same(self) -> None:
        self.both(lambda store: store.requests_after(0))

    def teardown(self) -> None:
        for id in map(job_id, range(1, 7)):
            self.both(partial(saves_of, id=id))
        self.both(lambda store: store.lead())
        self.both(lambda store: store.audit(limit=10_000))
        self.loop.run_until_complete(self.store.close())
        self.loop.run_until_complete(self.loop.shutdown_default_executor())
        self.loop.close()
        self.leave_place()


TestStores = Stores.TestCase
TestStores.settings = settings(
    max_examples=40,
    stateful_step_count=30,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)


def test_postgresql_answers_as_the_model_does(postgres: Server) -> None:
    class OnPostgres(Stores):
        def new_place(self) -> str:
            return postgres.database()

        def opened(self) -> TableStore:
            return PostgresStore(
                self.place, fresh_id=lambda: "memory", keep_keys=KEEP_KEYS
            )

        def leave_place(self) -> None:
            """It goes with the server."""

    fewer = settings(TestStores.settings, max_examples=15)
    run_state_machine_as_test(OnPostgres, settings=fewer)
