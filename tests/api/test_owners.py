"""Numbers of users, from which nodes make uids."""

import asyncio

from corral.api.user_numbers import OwnerNumbers
from corral.domain.ids import UserName
from corral.domain.users import Role, User
from corral.store.memory_store import MemoryStore


def user(name: str, at: float = 1.0) -> User:
    return User(name=UserName(name), role=Role.USER, created_at=at)


def test_a_number_is_the_same_on_every_head_and_never_given_to_another() -> None:
    async def scenario() -> None:
        store = MemoryStore()
        first, second = OwnerNumbers(), OwnerNumbers()
        ann, bob = user("ann"), user("bob")
        assert [await first.of(store, one) for one in (ann, bob, ann)] == [0, 1, 0]
        assert [await second.of(store, one) for one in (bob, ann)] == [1, 0]
        again = user("ann", at=2.0)  # removed, and added anew
        assert await second.of(store, again) == 2
        assert await first.of(store, again) == 2

    asyncio.run(scenario())
