"""Numbers of the cluster's users. Nodes that have a range of uids derive accounts from
them."""

import asyncio
from dataclasses import dataclass, field
from itertools import count

from corral.domain.users import User
from corral.ports.store import Store


@dataclass(slots=True)
class OwnerNumbers:
    """Cache of the user numbers; the store keeps them permanently.

    A number belongs to a name and the moment at which that user was added. A user who
    is removed and added again under the same name gets another number, and no access to
    the old files.
    """

    _numbers: dict[str, int] = field(default_factory=dict)
    _turn: asyncio.Lock = field(default_factory=asyncio.Lock)

    async def of(self, store: Store, user: User) -> int:
        """Return the user's number, counted from 0. It is assigned at the first
        request."""
        own_name = f"{user.name} {user.created_at!r}"
        async with self._turn:
            if own_name not in self._numbers:
                self._numbers[own_name] = await self._assign_owner_number(
                    store, own_name
                )
            return self._numbers[own_name]

    async def _assign_owner_number(self, store: Store, mine: str) -> int:
        """Assign the lowest number that no head has assigned to another user. `mine`
        identifies this user."""
        used_numbers = set(self._numbers.values())
        for number in count():
            if number in used_numbers:
                continue
            if (agreed := await store.agree(f"owner {number}", mine)) == mine:
                return number
            self._numbers[agreed] = number
        raise AssertionError("numbers do not end")
