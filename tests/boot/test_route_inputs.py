"""Routes with what only the store has: keys of fallbacks, and what was used of budgets."""

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest

from corral.boot.fallback_keys import read_fallback_keys
from corral.domain.ids import ServiceName, UserName
from corral.domain.service_access import FallbackRule
from corral.domain.users import Role, User
from corral.domain.world import Changes
from corral.store.memory_store import MemoryStore
from corral.wire.gateway_routes import ServiceEntry
from tests.api.heads import PlainSeals
from tests.boot.test_service_gateway import ENTRY, Play, play, within
from tests.control.services import counted, report
from tests.worlds import ALICE

CHAT = ServiceName("chat")
RULE = FallbackRule(url="https://api.example.com/v1", model="large", secret="KEY")


def entry(head: Play) -> ServiceEntry | None:
    return None if head.routes is None else head.routes.services[0]


def give_fallback(head: Play) -> None:
    own = head.world.services[CHAT]
    (revision,) = own.revisions
    spec = replace(revision.spec, fallback=RULE)
    head.world.services[CHAT] = own.with_revision(replace(revision, spec=spec))
    head.traffic.committed(head.world, Changes())


async def set_secret(head: Play, value: str, by: str = ALICE) -> None:
    sealed = PlainSeals().seal("KEY", value.encode())
    await head.store.put_secret("KEY", sealed, by=UserName(by), at=1.0, entry=ENTRY)


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("corral.boot.service_gateway.LOOK_SECONDS", 0.02)


def test_the_key_of_a_fallback_is_in_the_routes_while_its_owner_has_the_secret(
    tmp_path: Path,
) -> None:
    async def scenario(head: Play) -> None:
        head.commit(1)
        give_fallback(head)
        await within(5.0, lambda: entry(head) is not None)
        assert head.routes is not None
        assert head.routes.services[0].fallback is None
        await set_secret(head, "sk-1\n")

        def key() -> str | None:
            fallback = head.routes and head.routes.services[0].fallback
            return fallback.key if fallback else None

        await within(5.0, lambda: key() == "sk-1")
        assert head.process.routes_file.stat().st_mode & 0o777 == 0o600
        await set_secret(head, "sk-2")
        await within(5.0, lambda: key() == "sk-2")
        await head.store.drop_secret("KEY", entry=ENTRY)
        await within(5.0, lambda: key() is None)
        await set_secret(head, "sk-3")
        await within(5.0, lambda: key() == "sk-3")

    play(tmp_path, scenario)


@pytest.mark.parametrize(
    ("value", "by", "everybody", "key"),
    [
        (" sk-1\n", ALICE, False, "sk-1"),
        ("sk-1", "ann", False, None),
        ("sk-1", "ann", True, "sk-1"),
        ("sk 1", ALICE, False, None),
        ("sk-1\r\nHost: x", ALICE, False, None),
        ("\u00e9", ALICE, False, None),
        ("", ALICE, False, None),
    ],
)
def test_a_key_is_a_plain_text_in_a_secret_that_the_owner_may_use(
    value: str, by: str, everybody: bool, key: str | None
) -> None:
    async def scenario() -> None:
        store = MemoryStore()
        await store.put_secret(
            "KEY",
            PlainSeals().seal("KEY", value.encode()),
            by=UserName(by),
            at=1.0,
            for_everybody=everybody,
            entry=ENTRY,
        )
        needed = frozenset({(CHAT, ALICE, "KEY")})
        keys = await read_fallback_keys(store, PlainSeals(), needed)
        assert keys.get(CHAT) == key

    asyncio.run(scenario())


def test_a_budget_shrinks_by_what_gateways_report_and_by_what_the_ledger_has(
    tmp_path: Path,
) -> None:
    async def scenario(head: Play) -> None:
        user = User(
            name=UserName("bob"),
            role=Role.USER,
            created_at=1.0,
            limits=(("tokens_per_month", 1000),),
        )
        await head.store.add_user(user, entry=ENTRY)
        head.commit(1)

        def left() -> int | None:
            budgets = () if head.routes is None else head.routes.budgets
            return budgets[0].part if budgets else None

        now = head.gateway.control.serving_seconds
        head.traffic.meet("own", now())
        await within(5.0, lambda: left() == 1000)
        used = counted(2, tokens={"bob/t1": (300, 100, 200)})
        head.traffic.take("own", report(chat=used), now())
        await within(5.0, lambda: left() == 500)
        used = counted(3, tokens={"bob/t1": (900, 100, 200), "ann/t2": (5, 0, 5)})
        head.traffic.take("own", report(chat=used), now())
        await within(5.0, lambda: left() == 0)

    play(tmp_path, scenario)
