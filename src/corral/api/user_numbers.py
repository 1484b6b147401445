"""Numbers of users in the cluster, from which nodes with a range of uids make
accounts."""

import asyncio
from dataclasses import dataclass, field
from itertools import count

from corral.domain.users import User
from corral.ports.store import Store


@dataclass(slots=True)
class OwnerNumbers:
    """Cache of the numbers; the store keeps them for ever.

    A number belongs to a name and the moment at which that user was added: a user who
    is removed and added again under the same name gets another number, and none of the
    old files.
    """

    _numbers: dict[str, int] = field(default_factory=dict)
    _turn: asyncio.Lock = field(default_factory=asyncio.Lock)

    async def of(self, store: Store, user: User) -> int:
        """The user's number, from 0 on; assigned when it is first asked for."""
        own_name = f"{user.name} {user.created_at!r}"
        async with self._turn:
            if own_name not in self._numbers:
                self._numbers[own_name] = await self._assign_owner_number(
                    store, own_name
                )
            return self._numbers[own_name]

    async def _assign_owner_number(self, store: Store, mine: str) -> int:
        """The lowest number that no other user has been given, on any head."""
        used_numbers = set(self._numbers.values())
        for number in count():
            if number in used_numbers:
                continue
            if (agreed := await store.agree(f"owner {number}", mine)) == mine:
                return number
            self._numbers[agreed] = number
        raise AssertionError("numbers do not end")
