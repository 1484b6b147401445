"""Log-ins of identities that the provider has authenticated, but that no admin has
linked to a user of the cluster yet."""

import hashlib
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from corral.domain.errors import NotFound
from corral.domain.ids import UserName
from corral.domain.units import DAY_SECONDS
from corral.domain.users import ProviderIdentity

PENDING_SECONDS: Final = DAY_SECONDS
PENDING_MOST: Final = 1_000  # the oldest goes first: whoever is left out logs in again


@dataclass(frozen=True, slots=True, kw_only=True)
class PendingLogIn:
    """One refused log-in of an unlinked identity. `name` is the user name that the
    provider's claim proposes."""

    id: str
    identity: ProviderIdentity
    name: UserName
    at: float


@dataclass(slots=True, kw_only=True)
class PendingLogIns:
    """Refused log-ins of the last day. They are held in memory, in a limited number,
    and are lost when the head ends."""

    wall: Callable[[], float]
    _by_id: dict[str, PendingLogIn] = field(default_factory=dict)

    def add(self, identity: ProviderIdentity, name: UserName) -> PendingLogIn:
        """Keep a refused log-in, and return it. The same identity gets the same id each
        time."""
        text = f"{identity.issuer}\0{identity.subject}"
        id = "p" + hashlib.sha256(text.encode()).hexdigest()[:16]
        self._by_id.pop(id, None)
        pending_log_in = PendingLogIn(
            id=id, identity=identity, name=name, at=self.wall()
        )
        self._by_id[id] = pending_log_in
        while len(self._by_id) > PENDING_MOST:
            del self._by_id[next(iter(self._by_id))]
        return pending_log_in

    def all(self) -> list[PendingLogIn]:
        """Return the refused log-ins of the last day, newest first."""
        oldest = self.wall() - PENDING_SECONDS
        return [
            pending_log_in
            for pending_log_in in reversed(self._by_id.values())
            if pending_log_in.at >= oldest
        ]

    def find(self, id: str) -> PendingLogIn:
        """Return the refused log-in with this id.

        Raises: NotFound.
        """
        by_id = {pending_log_in.id: pending_log_in for pending_log_in in self.all()}
        if id not in by_id:
            raise NotFound(
                "pending log-in", id[:40], list(by_id), see="corral user pending"
            )
        return by_id[id]

    def drop(self, id: str) -> None:
        self._by_id.pop(id, None)
