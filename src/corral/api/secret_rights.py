"""Visibility of a secret: jobs of its owner, or all jobs."""

from collections.abc import Mapping, Set
from dataclasses import dataclass

from corral.domain.ids import UserName
from corral.ports.store import Store


@dataclass(frozen=True, slots=True)
class KnownSecrets:
    """All secrets by name, without values."""

    owners: Mapping[str, UserName]
    for_everybody: Set[str]

    def serves(self, name: str, owner: UserName) -> bool:
        """Whether jobs of this owner may ask for it."""
        return name in self.for_everybody or self.owners.get(name) == owner

    def usable(self, owner: UserName) -> list[str]:
        """Names that jobs of this owner may ask for."""
        return [name for name in self.owners if self.serves(name, owner)]


async def known_secrets(store: Store) -> KnownSecrets:
    owners = {name: owner for name, owner, _ in await store.secrets()}
    return KnownSecrets(owners, await store.secrets_for_everybody())
