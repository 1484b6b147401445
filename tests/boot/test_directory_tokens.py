"""The tokens of the cluster's directory: made once, renewed each day, revoked for
good."""

import asyncio
from collections.abc import Coroutine
from pathlib import Path
from typing import Any, TypeVar

import pytest

from corral.api import token_digest
from corral.boot.directory_tokens import DirectoryToken
from corral.domain.ids import TokenId, UserName
from corral.domain.users import HEAD, AuditEntry, Role, Token, User, token_id
from corral.store.memory_store import MemoryStore

HOUR = 3600.0
ANN = UserName("ann")
T = TypeVar("T")


class World:
    def __init__(self, folder: Path) -> None:
        self.now = 1_000_000.0
        self.store = MemoryStore()
        self.hidden: list[str] = []
        self.file = folder / "token"

    def token(self) -> DirectoryToken:
        return DirectoryToken(
            store=self.store,
            file=self.file,
            user=ANN,
            role=Role.ADMIN,
            wall=lambda: self.now,
            hide=self.hidden.append,
        )

    def lets_in(self, secret: str) -> bool:
        found = run(self.store.identity(token_digest(secret)))
        if found is None:
            return False
        token, _ = found
        over = token.expires_at is not None and token.expires_at <= self.now
        return not over and token.revoked_at is None


def run(work: Coroutine[Any, Any, T]) -> T:
    return asyncio.run(work)


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


def entry() -> AuditEntry:
    return AuditEntry(at=1.0, by=HEAD, token=None, what="token.create", on="")


def test_the_first_start_makes_a_token_that_the_next_ones_keep(world: World) -> None:
    run(world.token().begin())
    secret = world.file.read_text()
    assert len(secret) >= 32
    assert world.file.stat().st_mode & 0o777 == 0o600
    assert world.lets_in(secret)
    run(world.token().begin())
    assert world.file.read_text() == secret
    assert world.hidden == [secret, secret]


def test_it_is_renewed_after_half_a_day_and_the_earlier_one_counts_until_its_end(
    world: World,
) -> None:
    one = world.token()
    run(one.begin())
    first = world.file.read_text()
    world.now += 11 * HOUR
    run(one.look())
    assert world.file.read_text() == first
    world.now += 2 * HOUR
    run(one.look())
    second = world.file.read_text()
    assert one.secret == second != first
    assert world.hidden[-1] == second
    assert world.lets_in(first)
    assert world.lets_in(second)
    world.now += 11 * HOUR
    assert not world.lets_in(first)
    run(one.look())
    assert run(world.store.token(token_id(token_digest(first)))) is None


def test_after_a_month_without_a_head_the_next_one_makes_another(world: World) -> None:
    run(world.token().begin())
    first = world.file.read_text()
    world.now += 30 * 24 * HOUR
    run(world.token().begin())
    assert not world.lets_in(first)
    assert world.lets_in(world.file.read_text())


def test_a_token_of_an_earlier_release_which_has_no_end_gets_one(world: World) -> None:
    secret = "a-token-without-an-end-0123456789"
    world.file.write_text(secret)
    digest = token_digest(secret)
    old = Token(
        id=token_id(digest), sha256=digest, user=ANN, role=Role.ADMIN, created_at=1.0
    )
    run(
        world.store.add_user(
            User(name=ANN, role=Role.ADMIN, created_at=1.0), entry=entry()
        )
    )
    run(world.store.add_token(old, entry=entry()))
    run(world.token().begin())
    assert world.file.read_text() != secret
    assert world.lets_in(secret)
    world.now += 25 * HOUR
    assert not world.lets_in(secret)


def test_what_was_revoked_stays_so_and_is_not_renewed(world: World) -> None:
    run(world.token().begin())
    secret = world.file.read_text()
    id = token_id(token_digest(secret))
    run(world.store.revoke_token(id, at=world.now, entry=entry()))
    world.now += 100 * HOUR
    run(world.token().begin())
    assert world.file.read_text() == secret
    assert not world.lets_in(secret)


def test_a_token_that_others_were_sent_ends_with_the_head(world: World) -> None:
    run(world.token().begin(afresh=True))
    first = world.file.read_text()
    run(world.token().begin(afresh=True))
    assert world.file.read_text() != first
    assert run(world.store.token(TokenId(token_id(token_digest(first))))) is None


def test_a_head_that_ends_before_it_wrote_the_file_loses_nothing(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = world.token()
    run(one.begin())
    first = world.file.read_text()
    world.now += 13 * HOUR

    def full(path: Path, text: str) -> None:
        raise OSError("no space left on device")

    with monkeypatch.context() as patch:
        patch.setattr("corral.boot.directory_tokens.write_atomically", full)
        with pytest.raises(OSError, match="no space"):
            run(one.look())
    assert world.file.read_text() == first
    assert world.lets_in(first)
    run(world.token().begin())
    assert world.lets_in(world.file.read_text())
    assert world.file.read_text() != first
