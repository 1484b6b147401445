"""Which jobs may use a secret: only those of its owner, or all jobs."""

from collections.abc import Mapping, Set
from dataclasses import dataclass

from corral.domain.ids import UserName
from corral.ports.store import Store


@dataclass(frozen=True, slots=True)
class KnownSecrets:
    """The names and owners of all secrets, without their values."""

    owners: Mapping[str, UserName]
    for_everybody: Set[str]

    def serves(self, name: str, owner: UserName) -> bool:
        """Return whether jobs of this owner may use the secret of this name."""
        return name in self.for_everybody or self.owners.get(name) == owner

    def usable(self, owner: UserName) -> list[str]:
        """Return the names of the secrets that jobs of this owner may request."""
        return [name for name in self.owners if self.serves(name, owner)]


async def known_secrets(store: Store) -> KnownSecrets:
    owners = {name: owner for name, owner, _ in await store.secrets()}
    return KnownSecrets(owners, await store.secrets_for_everybody())
