"""Users, tokens and the audit log, on every store."""

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from corral.domain.errors import Conflict, TokenRevoked
from corral.domain.ids import JobId, NodeId, TokenId, UserName
from corral.domain.requests import Cancel, SetNode
from corral.domain.users import (
    NODE_TOKEN_SECONDS,
    AuditEntry,
    ProviderIdentity,
    Removed,
    Role,
    Speaker,
    SpeakerKind,
    Token,
    TokenKind,
    User,
    token_id,
)
from corral.ports.store import Store
from tests.contracts.stores.conftest import Place
from tests.store.rows import ANN, submit

BOB = UserName("bob")
T1 = Speaker(token=TokenId("t1"), kind=SpeakerKind.USER, source="192.0.2.7")
AB, CD = "ab" * 32, "cd" * 32


def entry(
    what: str = "user.add", on: str = "", by: UserName = ANN, at: float = 1.0
) -> AuditEntry:
    return AuditEntry(at=at, by=by, token=TokenId("t1"), what=what, on=on)


def user(name: UserName = ANN, role: Role = Role.ADMIN, **more: Any) -> User:
    return User(name=name, role=role, created_at=1.0, **more)


def token(sha256: str = AB, name: UserName = ANN, **more: Any) -> Token:
    role = more.pop("role", Role.ADMIN)
    return Token(
        id=token_id(sha256), sha256=sha256, user=name, role=role, created_at=1.0, **more
    )


async def said(store: Store) -> list[str]:
    return [one.what for one in reversed(await store.audit(limit=99))]


def test_a_user_is_added_once_changed_and_removed(place: Place) -> None:
    async def scenario(store: Store) -> None:
        assert await store.add_user(user(), entry=entry())
        assert await store.add_user(user(BOB, Role.USER), entry=entry())
        assert not await store.add_user(user(BOB, Role.ADMIN), entry=entry())
        assert await store.users() == [user(), user(BOB, Role.USER)]
        changed = await store.change_user(
            BOB, role=Role.VIEWER, entry=entry("user.set")
        )
        assert changed == user(BOB, Role.VIEWER)
        changed = await store.change_user(BOB, disabled=True, entry=entry("user.set"))
        assert changed == user(BOB, Role.VIEWER, disabled=True)
        assert (
            await store.change_user(UserName("eve"), disabled=True, entry=entry())
            is None
        )
        assert await store.remove_user(BOB, at=2.0, entry=entry("user.remove"))
        assert not await store.remove_user(BOB, at=2.0, entry=entry("user.remove"))
        assert await store.users() == [user()]
        assert await said(store) == ["user.add"] * 2 + ["user.set"] * 2 + [
            "user.remove"
        ]

    place.run(scenario)


def test_a_removed_user_leaves_only_secrets_for_everybody_and_no_job_to_the_next(
    place: Place,
) -> None:
    async def scenario(store: Store) -> None:
        await store.lead()
        await store.add_user(user(), entry=entry())
        await store.add_user(user(BOB, Role.ADMIN), entry=entry())
        await store.add_token(token(CD, BOB), entry=entry())
        await store.put_secret("OWN", b"x", by=BOB, at=1.0)
        await store.put_secret("ALL", b"x", by=BOB, at=1.0, for_everybody=True)
        await store.put_secret("ANNS", b"x", by=ANN, at=1.0)
        request = await store.add_request(submit("first"), by=BOB, at=1.0)
        removed = await store.remove_user(BOB, at=2.0, entry=entry("user.remove"))
        assert removed == Removed(secrets_removed=1, secrets_kept=1, tokens_revoked=1)
        assert await store.secrets() == [("ALL", ANN, 1.0), ("ANNS", ANN, 1.0)]
        assert (await store.audit(limit=1))[0].detail == removed.text
        await store.add_user(user(BOB, Role.USER), entry=entry())
        assert [one.jobs_after for one in await store.users()] == [0, request.sequence]

    place.run(scenario)


def test_an_identity_at_the_provider_belongs_to_one_user(place: Place) -> None:
    async def scenario(store: Store) -> None:
        one, other = (
            ProviderIdentity(issuer="https://a", subject=sub) for sub in ("1", "2")
        )
        await store.add_user(user(identity=one), entry=entry())
        await store.add_user(user(BOB, Role.USER), entry=entry())
        with pytest.raises(Conflict, match="already linked to the user ann"):
            await store.link_user(BOB, identity=one, entry=entry("user.link"))
        with pytest.raises(Conflict, match="already linked to the user ann"):
            await store.add_user(user(UserName("eve"), identity=one), entry=entry())
        linked = await store.link_user(BOB, identity=other, entry=entry("user.link"))
        assert linked == user(BOB, Role.USER, identity=other)
        await store.link_user(ANN, identity=None, entry=entry("user.unlink"))
        assert await store.users() == [user(), user(BOB, Role.USER, identity=other)]
        assert (
            await store.link_user(UserName("eve"), identity=one, entry=entry()) is None
        )
        assert await said(store) == ["user.add"] * 2 + ["user.link", "user.unlink"]

    place.run(scenario)


def test_the_last_admin_stays(place: Place) -> None:
    async def scenario(store: Store) -> None:
        await store.add_user(user(), entry=entry())
        await store.add_user(user(BOB, disabled=True), entry=entry())
        with pytest.raises(Conflict, match="last admin"):
            await store.change_user(ANN, role=Role.USER, entry=entry("no"))
        with pytest.raises(Conflict, match="last admin"):
            await store.change_user(ANN, disabled=True, entry=entry("no"))
        with pytest.raises(Conflict, match="last admin"):
            await store.remove_user(ANN, at=2.0, entry=entry("no"))
        assert await store.users() == [user(), user(BOB, disabled=True)]
        await store.change_user(BOB, disabled=False, entry=entry())
        assert await store.remove_user(ANN, at=2.0, entry=entry())
        assert "no" not in await said(store)

    place.run(scenario)


def test_a_token_is_known_by_its_hash_alone_and_comes_with_its_user(
    place: Place,
) -> None:
    async def scenario(store: Store) -> None:
        assert await store.add_token(token(), entry=entry("token.create"))
        assert await store.identity(AB) == (token(), None)
        await store.add_user(user(), entry=entry())
        assert await store.identity(AB) == (token(), user())
        assert await store.identities([CD, AB]) == [None, (token(), user())]
        for other in (CD, AB[:-1], "né", ""):
            assert await store.identity(other) is None

    place.run(scenario)


def test_those_of_a_thousand_connections_are_told_at_once_each_in_its_place(
    place: Place,
) -> None:
    async def scenario(store: Store) -> None:
        await store.add_user(user(), entry=entry())
        await store.add_token(token(), entry=entry("token.create"))
        known = (token(), user())
        asked = [AB, *(f"{number:064x}" for number in range(1_200)), AB]
        assert await store.identities(asked) == [known, *[None] * 1_200, known]
        assert await store.identities([]) == []

    place.run(scenario)


def test_a_token_that_is_forgotten_leaves_a_line_in_the_log_and_nothing_else(
    place: Place,
) -> None:
    async def scenario(store: Store) -> None:
        await store.add_token(token(), entry=entry("token.create"))
        assert await store.forget_token(token_id(AB), entry=entry("token.forget"))
        assert not await store.forget_token(token_id(AB), entry=entry("token.forget"))
        assert (await store.tokens(), await store.identity(AB)) == ([], None)
        assert await said(store) == ["token.create", "token.forget"]

    place.run(scenario)


def test_a_revoked_token_stays_revoked_also_when_it_is_brought_again(
    place: Place,
) -> None:
    async def scenario(store: Store) -> None:
        await store.add_token(token(), entry=entry("token.create"))
        revoked = token(revoked_at=5.0)
        id = token_id(AB)
        assert (
            await store.revoke_token(id, at=5.0, entry=entry("token.revoke")) == revoked
        )
        assert (
            await store.revoke_token(id, at=6.0, entry=entry("token.revoke")) == revoked
        )
        assert await store.revoke_token(TokenId("t0"), at=6.0, entry=entry()) is None
        assert not await store.add_token(token(), entry=entry("token.create"))
        assert await store.tokens() == [revoked]
        assert await said(store) == ["token.create", "token.revoke"]

    place.run(scenario)


def test_sessions_end_with_their_token_and_with_the_role_or_standing_of_their_user(
    place: Place,
) -> None:
    ids = {digit: f"{digit}" * 64 for digit in "123456"}

    def session(digit: str, of: UserName = ANN, **more: Any) -> Token:
        return token(
            ids[digit], of, kind=TokenKind.SESSION, page_sha256="f" * 64, **more
        )

    async def over(store: Store) -> set[str]:
        return {
            one.sha256[0] for one in await store.tokens() if one.revoked_at is not None
        }

    async def scenario(store: Store) -> None:
        await store.add_user(user(), entry=entry())
        await store.add_user(user(BOB, Role.USER), entry=entry())
        bearer = token(ids["1"], BOB)
        for made in (
            bearer,
            session("2", BOB, origin=bearer.id),
            session("3", BOB),
            session("4"),
        ):
            await store.add_token(made, entry=entry())
        await store.change_user(BOB, limits={"jobs": 1}, entry=entry())
        await store.change_user(BOB, role=Role.USER, entry=entry())
        assert await over(store) == set()
        await store.revoke_token(bearer.id, at=5.0, entry=entry())
        assert await over(store) == {"1", "2"}
        await store.change_user(BOB, role=Role.VIEWER, entry=replace(entry(), at=6.0))
        assert await over(store) == {"1", "2", "3"}
        await store.add_token(session("5", BOB), entry=entry())
        await store.add_token(token(ids["6"], BOB), entry=entry())
        await store.change_user(BOB, disabled=True, entry=replace(entry(), at=7.0))
        assert await over(store) == {"1", "2", "3", "5"}, "a token of a program stays"
        kept = {one.sha256[0]: one.revoked_at for one in await store.tokens()}
        assert (kept["2"], kept["3"], kept["5"]) == (5.0, 6.0, 7.0)

    place.run(scenario)


def test_who_is_removed_has_no_token_left_and_a_node_of_that_name_keeps_its_own(
    place: Place,
) -> None:
    of_node = token(CD, role=Role.NODE, node=NodeId("ann"))

    async def scenario(store: Store) -> None:
        await store.add_user(user(), entry=entry())
        await store.add_user(user(BOB), entry=entry())
        await store.add_token(token(), entry=entry())
        await store.add_token(of_node, entry=entry())
        await store.remove_user(ANN, at=7.0, entry=entry())
        assert await store.tokens() == [token(revoked_at=7.0), of_node]

    place.run(scenario)


def test_the_newest_use_of_a_token_is_kept(place: Place) -> None:
    async def scenario(store: Store) -> None:
        await store.add_token(token(), entry=entry())
        for at in (3.0, 9.0, 6.0):
            await store.use_token(token_id(AB), at=at)
        await store.use_token(TokenId("t0"), at=1.0)
        assert await store.tokens() == [token(used_at=9.0)]

    place.run(scenario)


def test_every_request_has_its_line_and_a_repeated_one_no_second(place: Place) -> None:
    async def scenario(store: Store) -> None:
        for _ in range(2):
            await store.add_request(submit("gpt", key="k"), by=ANN, at=1.0, speaker=T1)
        await store.add_request(
            Cancel(job=JobId("j1")),
            by=BOB,
            at=2.0,
            speaker=Speaker(token=TokenId("t2")),
        )
        await store.add_request(SetNode(node=NodeId("n1"), to="drain"), by=BOB, at=3.0)
        drained, cancelled, submitted = await store.audit(limit=9)
        assert (submitted.what, submitted.on, submitted.detail) == (
            "job.submit",
            "j1",
            "gpt",
        )
        assert (submitted.by, submitted.token, submitted.number) == (ANN, "t1", 1)
        assert (submitted.kind, submitted.source) == ("user", "192.0.2.7")
        assert (cancelled.what, cancelled.on, cancelled.at) == ("job.cancel", "j1", 2.0)
        assert (drained.what, drained.on, drained.token) == ("node.drain", "n1", None)

    place.run(scenario)


def test_the_log_is_read_newest_first_by_whom_since_and_before(place: Place) -> None:
    async def scenario(store: Store) -> None:
        for number in range(1, 7):
            by = BOB if number % 2 else ANN
            await store.record(entry(f"a{number}", by=by, at=float(number)))

        async def read(**asked: Any) -> list[int]:
            return [one.number for one in await store.audit(**{"limit": 99, **asked})]

        assert await read() == [6, 5, 4, 3, 2, 1]
        assert await read(limit=2) == [6, 5]
        assert await read(before=3) == [2, 1]
        assert await read(since=5.0) == [6, 5]
        assert await read(by=BOB, since=2.0) == [5, 3]
        assert await read(by=UserName("eve")) == []
        assert await read(limit=-1) == []

    place.run(scenario)


def test_a_secret_that_is_set_or_dropped_has_its_line(place: Place) -> None:
    async def scenario(store: Store) -> None:
        await store.put_secret(
            "A", b"x", by=ANN, at=1.0, entry=entry("secret.set", "A")
        )
        await store.drop_secret("A", entry=entry("secret.remove", "A"))
        await store.drop_secret("A", entry=entry("secret.remove", "A"))
        assert await said(store) == ["secret.set", "secret.remove"]

    place.run(scenario)


def join_token(**more: Any) -> Token:
    return token(role=Role.JOIN, uses_left=more.pop("uses_left", 1), **more)


def of_node(sha256: str, name: str = "w1") -> Token:
    return token(sha256, UserName(name), role=Role.NODE, node=NodeId(name))


def test_a_join_token_is_spent_in_one_step_with_the_node_it_lets_in(
    place: Place,
) -> None:
    async def scenario(store: Store) -> None:
        join, made = join_token(expires_at=9.0), of_node(CD)
        await store.add_token(join, entry=entry("node.token"))
        assert (
            await store.spend_token(join.id, made, at=9.0, entry=entry("late")) is None
        )
        assert (
            await store.spend_token(TokenId("t0"), made, at=2.0, entry=entry("no"))
            is None
        )
        left = await store.spend_token(join.id, made, at=2.0, entry=entry("node.join"))
        assert left is not None
        assert left.uses_left == 0
        assert await store.identity(CD) == (made, None)
        other = of_node("ef" * 32, "w2")
        assert (
            await store.spend_token(join.id, other, at=2.0, entry=entry("twice"))
            is None
        )
        assert await store.identity(other.sha256) is None
        assert await said(store) == ["node.token", "node.join"]

    place.run(scenario)


def test_a_node_token_is_replaced_in_one_step_and_older_ones_are_forgotten(
    place: Place,
) -> None:
    async def scenario(store: Store) -> None:
        first, other = of_node(AB), of_node("0f" * 32, "w2")
        second = replace(of_node(CD), created_at=5.0, expires_at=9.0)
        third = replace(of_node("ef" * 32), created_at=7.0)
        for one in (first, other):
            await store.add_token(one, entry=entry("node.join"))
        before = await store.renew_token(
            first.id, second, at=5.0, entry=entry("token.renew")
        )
        assert before == replace(first, expires_at=5.0 + NODE_TOKEN_SECONDS)
        assert await store.token(first.id) == before
        await store.use_token(second.id, at=6.0)
        with pytest.raises(TokenRevoked, match="replaced by a newer one"):
            await store.renew_token(first.id, third, at=7.0, entry=entry("no"))
        left = await store.renew_token(
            second.id, third, at=7.0, entry=entry("token.renew")
        )
        assert left == replace(second, used_at=6.0)
        assert {one.id for one in await store.tokens()} == {
            second.id,
            third.id,
            other.id,
        }
        assert await store.token(first.id) is None
        await store.revoke_token(third.id, at=8.0, entry=entry("token.revoke"))
        fourth = of_node("aa" * 32)
        # revoked, unknown, and another node's
        for id in (third.id, first.id, other.id):
            assert (
                await store.renew_token(id, fourth, at=9.0, entry=entry("no")) is None
            )
        assert "no" not in await said(store)

    place.run(scenario)


def test_a_token_of_a_part_counts_no_more_once_it_is_replaced(place: Place) -> None:
    async def scenario(store: Store) -> None:
        part = "w1~j1.1"
        first, unused = of_node(AB, part), of_node("0f" * 32, part)
        second = replace(of_node(CD, part), created_at=5.0, expires_at=None)
        for one in (first, unused):  # a second one, where the first try was not taken
            await store.add_token(one, entry=entry("token.create"))
        before = await store.renew_token(
            first.id, second, at=5.0, entry=entry("token.renew")
        )
        assert before == replace(first, revoked_at=5.0)
        assert {one.id for one in await store.tokens()} == {first.id, second.id}
        third = replace(of_node("ef" * 32, part), created_at=7.0)
        assert (
            await store.renew_token(first.id, third, at=7.0, entry=entry("no")) is None
        )

    place.run(scenario)


def test_two_who_spend_the_last_use_at_once_are_told_apart(place: Place) -> None:
    async def scenario(store: Store) -> None:
        join = join_token(uses_left=2)
        await store.add_token(join, entry=entry("node.token"))
        tries = [of_node(f"{n:02x}" * 32, f"w{n}") for n in range(5)]
        done = await asyncio.gather(
            *(store.spend_token(join.id, one, at=2.0, entry=entry()) for one in tries)
        )
        assert sum(one is not None for one in done) == 2
        assert len([one for one in await store.tokens() if one.node]) == 2

    place.run(scenario)


def test_a_name_that_a_valid_token_has_is_taken_until_that_is_revoked(
    place: Place,
) -> None:
    async def scenario(store: Store) -> None:
        join, first, second = join_token(uses_left=9), of_node(CD), of_node("ef" * 32)
        await store.add_token(join, entry=entry("node.token"))
        await store.spend_token(join.id, first, at=2.0, entry=entry())
        for again in (second, of_node(CD, "w2")):  # the name, then the secret
            with pytest.raises(Conflict):
                await store.spend_token(join.id, again, at=2.0, entry=entry("no"))
        await store.revoke_token(first.id, at=3.0, entry=entry("token.revoke"))
        left = await store.spend_token(join.id, second, at=4.0, entry=entry())
        assert left is not None
        assert left.uses_left == 7
        assert "no" not in await said(store)

    place.run(scenario)
