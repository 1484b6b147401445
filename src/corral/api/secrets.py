"""Whose jobs a secret serves: those of whom set it; an admin's, those of everybody."""

from corral.domain.ids import UserName
from corral.domain.people import Role
from corral.ports.store import Store


async def secrets_for(store: Store, owner: UserName) -> tuple[list[str], list[str]]:
    """(names that jobs of this owner may ask for, names of the others' secrets)"""
    admins = {user.name for user in await store.users() if user.role == Role.ADMIN}
    found = await store.secrets()
    usable = [name for name, by, _ in found if by == owner or by in admins]
    return usable, [name for name, _, _ in found if name not in usable]
